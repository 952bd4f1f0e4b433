// bolide inspect of an ONNX model: operators, inputs and outputs, and what each pass makes of them.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/model_flags.h"
#include "app/network.h"
#include "cli/network.h"
#include "measure/report.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

std::string counts_of(const std::map<std::string, int>& ops) {
  std::string text;
  for (const auto& [op, n] : ops) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, op);
  return text;
}

std::map<std::string, int> count_ops(const Graph& graph) {
  std::map<std::string, int> ops;
  const auto count = [&](const auto& self, const Graph& one) -> void {
    for (const NodeId id : one.order()) {
      ++ops[std::string(op_name(one.node(id).op))];
      for (const Body& body : one.node(id).bodies) self(self, *body.graph);
    }
  };
  count(count, graph);
  return ops;
}

// Each pass: how often it fired, how many nodes there are then, and which operators came and went.
Result<> inspect_passes(OnnxProgram& program, const NetworkFlags& flags) {
  std::map<std::string, int> before = count_ops(program.graph);
  const auto total = [](const std::map<std::string, int>& ops) {
    int sum = 0;
    for (const auto& [op, n] : ops) sum += n;
    return sum;
  };
  ordered_json list = ordered_json::array();
  if (!flags.json) fmt::print("{:<26}{:>9}  {} nodes: {}\n", "as built", "", total(before), counts_of(before));
  const auto show = [&](const PassRecord& record, const Graph& graph) {
    const std::map<std::string, int> after = count_ops(graph);
    std::string changes;
    std::map<std::string, int> change = after;
    for (const auto& [op, n] : before) change[op] -= n;
    for (const auto& [op, n] : change)
      if (n != 0) changes += fmt::format(" {:+d} {}", n, op);
    if (flags.json)
      list.push_back({{"pass", record.name},
                      {"rewrites", record.rewrites},
                      {"skipped", record.skipped},
                      {"ms", record.ms},
                      {"nodes", total(after)}});
    else
      fmt::print("{:<26}{:>9}  {} nodes{}\n", record.name,
                 record.skipped ? std::string("skipped") : fmt::format("{}", record.rewrites), total(after), changes);
    before = after;
  };
  const FunctionRef<void(const PassRecord&, const Graph&)> observer(show);
  Workers workers(1);
  BOLIDE_TRY(run_passes(program, workers, split_names(flags.skip_passes), &observer));
  if (flags.json)
    std::cout << ordered_json{{"model", flags.path}, {"passes", list}, {"operators", before}}.dump() << std::endl;
  else
    fmt::print("{:<26}{:>9}  {} nodes: {}\n", "as run", "", total(before), counts_of(before));
  return {};
}

}  // namespace

Result<> inspect_network(const NetworkFlags& flags) {
  BOLIDE_TRY(OnnxProgram program, open_onnx(flags.path));
  if (flags.graph) return inspect_passes(program, flags);
  std::map<std::string, int> ops;
  size_t constants = 0, nodes = 0;
  const auto count = [&](const auto& self, const Graph& graph) -> void {
    for (const NodeId id : graph.order()) {
      ++ops[std::string(op_name(graph.node(id).op))], ++nodes;
      for (const Body& body : graph.node(id).bodies) self(self, *body.graph);
    }
    for (size_t i = 0; i < graph.value_count(); ++i)
      if (const Value& value = graph.value(static_cast<ValueId>(i));
          value.kind == ValueKind::kConstant && value.constant->tensor() != nullptr)
        constants += value.constant->tensor()->bytes();
  };
  count(count, program.graph);
  if (flags.json) {
    ordered_json out = {
        {"model", flags.path}, {"producer", program.producer}, {"nodes", nodes}, {"constant_bytes", constants}};
    for (const auto& [domain, version] : program.opsets) out["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
    for (const auto& port : program.inputs) out["inputs"][port.name] = to_string(port.type);
    for (const auto& port : program.outputs) out["outputs"][port.name] = to_string(port.type);
    for (const auto& [op, n] : ops) out["operators"][op] = n;
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("{}: ONNX", flags.path);
  for (const auto& [domain, version] : program.opsets)
    fmt::print(", {} {}", domain.empty() ? "ai.onnx" : domain, version);
  if (!program.producer.empty()) fmt::print(", by {:.60}", program.producer);
  fmt::print("\n{} nodes, {} of constants\n", nodes, format_bytes(static_cast<int64_t>(constants)));
  for (const auto& port : program.inputs) fmt::print("input   {} {}\n", port.name, to_string(port.type));
  for (const auto& port : program.outputs) fmt::print("output  {} {}\n", port.name, to_string(port.type));
  for (const auto& [op, n] : ops) fmt::print("{:>6}  {}\n", n, op);
  return {};
}

}  // namespace bolide::cli
