// bolide inspect of an ONNX model: operators, inputs and outputs, and what each pass makes of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/model_flags.h"
#include "app/network.h"
#include "base/utf8.h"
#include "cli/network.h"
#include "measure/report.h"
#include "passes/general/left_over.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

std::string port_text(const OnnxProgram::Port& port) {
  return printable(fmt::format("{} {}", port.name, to_string(port.type)));
}

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
    std::cout << ordered_json{{"model", flags.path}, {"passes", list}, {"operators", before}}.dump(
                     -1, ' ', false, ordered_json::error_handler_t::replace)
              << std::endl;
  else
    fmt::print("{:<26}{:>9}  {} nodes: {}\n", "as run", "", total(before), counts_of(before));
  return {};
}

// What runs, in order, with the memory that is live behind each node: one run says it, with random inputs.
struct PlannedNode {
  std::string name, op, kernel, output;
  size_t packed_bytes = 0, live_bytes = 0;
  std::vector<std::string> from;
};

Result<> inspect_plan(const NetworkFlags& flags) {
  BOLIDE_TRY(NetworkSession network, open_network(flags));
  BOLIDE_TRY(std::vector<AnyValue> inputs, network_inputs(network, flags, true));
  ordered_json shapes;
  for (size_t i = 0; i < inputs.size(); ++i) shapes[network.inputs()[i].name] = shape_text(inputs[i]);
  std::vector<PlannedNode> nodes;
  size_t packed = 0;
  const Interpreter& interpreter = network.shared_model()->interpreter();
  const auto see = [&](const Graph& graph, NodeId id, std::span<const AnyValue* const>, std::span<const AnyValue> out,
                       double) {
    const Node& node = graph.node(id);
    const PreparedOp* prepared = interpreter.prepared(graph, id);
    nodes.push_back({node.name, std::string(op_name(node.op)),
                     network.on_gpu() != nullptr ? network.on_gpu()->where(id)
                     : prepared != nullptr       ? std::string(prepared->kernel())
                                                 : "reference",
                     out.empty() ? std::string() : shape_text(out[0]), prepared != nullptr ? prepared->bytes() : 0,
                     network.pool().bytes_in_use(), node.from});
    packed += nodes.back().packed_bytes;
  };
  const GeneralObserver observer(see);
  BOLIDE_TRY(network.run(std::move(inputs), &observer));
  const NetworkModel& model = *network.shared_model();
  const std::vector<LeftOver> left = left_over(model.program().graph, declared_facts(model.inputs()));
  const auto peak = std::max_element(nodes.begin(), nodes.end(), [](const PlannedNode& a, const PlannedNode& b) {
    return a.live_bytes < b.live_bytes;
  });
  if (flags.json) {
    ordered_json list = ordered_json::array();
    for (const PlannedNode& node : nodes)
      list.push_back({{"node", node.name},
                      {"operator", node.op},
                      {"kernel", node.kernel},
                      {"output", node.output},
                      {"packed_bytes", node.packed_bytes},
                      {"live_bytes", node.live_bytes},
                      {"from", node.from}});
    ordered_json why = ordered_json::array();
    for (const LeftOver& one : left) why.push_back({{"node", one.node}, {"operator", one.op}, {"why", one.why}});
    std::cout << ordered_json{{"model", flags.path},
                              {"device", network.device().name},
                              {"inputs", shapes},
                              {"packed_bytes", packed},
                              {"activation_bytes", network.pool().bytes_in_use_max()},
                              {"nodes", list},
                              {"crossings", crossings_json(network)},
                              {"left_over", why}}
                     .dump(-1, ' ', false, ordered_json::error_handler_t::replace)
              << std::endl;
    return {};
  }
  fmt::print("{}, {}\n", network.device().name, to_string(network.device().isa));
  for (const auto& [name, shape] : shapes.items())
    fmt::print("input   {} {}\n", printable(name), shape.get<std::string>());
  Table table({{"node"}, {"operator"}, {"kernel"}, {"output"}, {"packed"}, {"live"}, {"made_of", 0}});
  const auto bytes = [](size_t n) { return n == 0 ? std::string() : format_bytes(static_cast<int64_t>(n)); };
  for (const PlannedNode& node : nodes)
    table.add({shortened(node.name), node.op, node.kernel, node.output, bytes(node.packed_bytes),
               bytes(node.live_bytes), static_cast<double>(std::max<size_t>(node.from.size(), 1))});
  fmt::print("{}", printable(table.to_text(), true));
  fmt::print("\nmemory: {} packed for kernels; values need at most {}{}\nnodes that take the place of others:\n",
             format_bytes(static_cast<int64_t>(packed)),
             format_bytes(static_cast<int64_t>(network.pool().bytes_in_use_max())),
             peak == nodes.end() ? "" : fmt::format(", most behind {}", printable(peak->name)));
  for (const PlannedNode& node : nodes)
    if (!node.from.empty())
      fmt::print("  {}\n", printable(fmt::format("{}: {}", node.name, fmt::join(node.from, ", "))));
  print_crossings(network);
  if (!left.empty()) fmt::print("not fused, and why:\n");
  for (const LeftOver& one : left)
    fmt::print("  {}\n", printable(fmt::format("{} ({}): {}", one.node, one.op, one.why)));
  return {};
}

}  // namespace

Result<> inspect_network(const NetworkFlags& flags) {
  if (flags.plan) return inspect_plan(flags);
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
  fmt::print("{}: ONNX", printable(flags.path));
  for (const auto& [domain, version] : program.opsets)
    fmt::print(", {} {}", domain.empty() ? "ai.onnx" : printable(domain), version);
  if (!program.producer.empty()) fmt::print(", by {:.60}", printable(program.producer));
  fmt::print("\n{} nodes, {} of constants\n", nodes, format_bytes(static_cast<int64_t>(constants)));
  for (const auto& port : program.inputs) fmt::print("input   {}\n", port_text(port));
  for (const auto& port : program.outputs) fmt::print("output  {}\n", port_text(port));
  for (const auto& [op, n] : ops) fmt::print("{:>6}  {}\n", n, op);
  return {};
}

}  // namespace bolide::cli
