#include "cli/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/model_flags.h"
#include "app/network.h"
#include "base/file.h"
#include "cli/flags.h"
#include "formats/npy.h"
#include "measure/report.h"
#include "measure/statistics.h"
#include "ops/number.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

constexpr auto kShown = kNumbers + Types<Bool>{};

// The index of the input that a flag NAME=VALUE is about, and its VALUE. A model of one input needs no name.
Result<std::pair<size_t, std::string>> split_flag(const NetworkSession& network, const std::string& flag,
                                                  const char* what) {
  const auto& inputs = network.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (flag.starts_with(inputs[i].name + "=")) return std::pair{i, flag.substr(inputs[i].name.size() + 1)};
  if (inputs.size() == 1 && flag.find('=') == std::string::npos) return std::pair{size_t{0}, flag};
  std::string names;
  for (const auto& port : inputs)
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", port.name, to_string(port.type));
  return error(Code::kInvalid,
               fmt::format("--{} {:.80}: expected NAME=VALUE with an input of the model: {:.400}", what, flag, names));
}

std::string shape_text(const AnyValue& value) {
  if (const Tensor* tensor = value.tensor())
    return fmt::format("{}{}", to_string(tensor->dtype()), to_string(tensor->shape()));
  if (const ValueSequence* sequence = value.sequence()) return fmt::format("sequence of {}", sequence->items.size());
  return "none";
}

// The first elements, and of numbers the range.
ordered_json summary(const Tensor& tensor) {
  constexpr size_t kFirst = 8;
  ordered_json out = {{"dtype", to_string(tensor.dtype())},
                      {"shape", std::vector<int64_t>(tensor.shape().span().begin(), tensor.shape().span().end())}};
  const size_t first = std::min<size_t>(kFirst, static_cast<size_t>(tensor.elements()));
  if (tensor.is_string()) {
    for (size_t i = 0; i < first; ++i) out["first"].push_back(tensor.as<std::string>()[i]);
    return out;
  }
  (void)dispatch(kShown, tensor.dtype(), "it", [&]<class T>() -> Result<> {
    double low = INFINITY, high = -INFINITY, sum = 0;
    size_t most = 0;
    const auto values = tensor.as<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(widen(values[i]));
      if (value > high) most = i;
      low = std::min(low, value), high = std::max(high, value), sum += value;
      if (i < first) out["first"].push_back(value);
    }
    if (!values.empty())
      out["min"] = low, out["max"] = high, out["mean"] = sum / static_cast<double>(values.size()), out["argmax"] = most;
    return {};
  });
  return out;
}

std::string short_text(const ordered_json& summary) {
  std::string text;
  if (summary.contains("min"))
    text = fmt::format("min {:.6g}, max {:.6g} at {}, mean {:.6g}; ", summary["min"].get<double>(),
                       summary["max"].get<double>(), summary["argmax"].get<size_t>(), summary["mean"].get<double>());
  if (summary.contains("first"))
    text += summary["first"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text;
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
    std::cout << ordered_json{{"model", flags.path}, {"passes", list}, {"operators", before}}.dump() << std::endl;
  else
    fmt::print("{:<26}{:>9}  {} nodes: {}\n", "as run", "", total(before), counts_of(before));
  return {};
}

}  // namespace

Result<std::vector<AnyValue>> network_inputs(const NetworkSession& network, const NetworkFlags& flags, bool fill) {
  const auto& ports = network.inputs();
  std::vector<AnyValue> values(ports.size());
  std::vector<std::string> shapes(ports.size());
  for (const std::string& flag : flags.shapes) {
    BOLIDE_TRY(const auto named, split_flag(network, flag, "shape"));
    shapes[named.first] = named.second;
  }
  for (const std::string& flag : flags.inputs) {
    BOLIDE_TRY(const auto named, split_flag(network, flag, "input"));
    std::string note;
    BOLIDE_TRY(values[named.first], network_input(ports[named.first], named.second, flags.seed + named.first, &note));
    if (!note.empty()) fmt::print(stderr, "input {}: {}\n", ports[named.first].name, note);
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    if (values[i].has_value()) continue;
    if (!fill && shapes[i].empty())
      return error(Code::kInvalid, fmt::format("input {} ({}) is missing: --input {}=FILE.npy, a list, or random",
                                               ports[i].name, to_string(ports[i].type), ports[i].name));
    std::string text = "random";
    if (!shapes[i].empty()) {
      text += ":" + shapes[i];
    } else if (ports[i].type.dims.has_value() && !ports[i].type.dims->empty()) {
      std::string shape;
      for (size_t d = 0; d < ports[i].type.dims->size(); ++d) {
        const OnnxDim& dim = (*ports[i].type.dims)[d];
        const int64_t size = dim.value.value_or(d == 0 && flags.batch > 0 ? flags.batch : 1);
        shape += fmt::format("{}{}", shape.empty() ? "" : "x", size);
      }
      text += ":" + shape;
    }
    BOLIDE_TRY(values[i], network_input(ports[i], text, flags.seed + i));
  }
  return values;
}

Result<> run_network(const NetworkFlags& flags) {
  if (!flags.output.empty() && !flags.output.ends_with(".npz"))
    return error(Code::kInvalid, fmt::format("--output {}: expected a name that ends in .npz", flags.output));
  if (!flags.output.empty()) BOLIDE_TRY(check_output_file(flags.output));
  BOLIDE_TRY(NetworkSession network, NetworkSession::open(flags.path, {.threads = flags.threads,
                                                                       .skip_passes = split_names(flags.skip_passes)}));
  BOLIDE_TRY(std::vector<AnyValue> inputs, network_inputs(network, flags, false));
  const auto start = std::chrono::steady_clock::now();
  BOLIDE_TRY(const std::vector<AnyValue> outputs, network.run(std::move(inputs)));
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::vector<std::pair<std::string, Tensor>> arrays;
  ordered_json out = {{"outputs", ordered_json::object()}, {"ms", ms}, {"load_ms", network.load_ms()}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = network.outputs()[i].name;
    if (const Tensor* tensor = outputs[i].tensor()) {
      arrays.emplace_back(name, *tensor);
      out["outputs"][name] = summary(*tensor);
    } else if (const ValueSequence* sequence = outputs[i].sequence()) {
      for (size_t k = 0; k < sequence->items.size(); ++k)
        if (const Tensor* item = sequence->items[k].tensor()) arrays.emplace_back(fmt::format("{}.{}", name, k), *item);
      out["outputs"][name] = {{"sequence", sequence->items.size()}};
    }
  }
  if (!flags.output.empty()) {
    BOLIDE_TRY(const std::vector<std::byte> file, write_npz(arrays));
    BOLIDE_TRY(write_file_atomically(flags.output, file));
  }
  if (flags.json) {
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    fmt::print("{} {}: {}\n", network.outputs()[i].name, shape_text(outputs[i]),
               short_text(out["outputs"][network.outputs()[i].name]));
  fmt::print(stderr, "{:.2f} ms; load {:.1f} ms\n", ms, network.load_ms());
  return {};
}

Result<> bench_network(const NetworkFlags& flags) {
  BOLIDE_TRY(NetworkSession network, NetworkSession::open(flags.path, {.threads = flags.threads,
                                                                       .skip_passes = split_names(flags.skip_passes)}));
  BOLIDE_TRY(const std::vector<AnyValue> inputs, network_inputs(network, flags, true));
  constexpr int kRepeat = 50;
  const int repeat = flags.repeat > 0 ? flags.repeat : kRepeat;
  std::vector<double> ms;
  double first_ms = 0;
  ProgressLine line;
  for (int i = -2; i < repeat; ++i) {
    line.show(i < 0 ? std::string("warming up") : fmt::format("{} of {} runs", i, repeat));
    const auto start = std::chrono::steady_clock::now();
    BOLIDE_TRY(network.run(inputs));
    const double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (i == -2) first_ms = took;
    if (i >= 0) ms.push_back(took);
  }
  line.clear();
  const Stat stat = summarise(ms);
  const double p99 = quantile(ms, 0.99);
  const auto memory = read_process_memory();
  const int64_t peak = memory ? memory->peak_bytes : 0;
  if (flags.json) {
    ordered_json shapes;
    for (size_t i = 0; i < inputs.size(); ++i) shapes[network.inputs()[i].name] = shape_text(inputs[i]);
    const ordered_json out = {
        {"model", flags.path},
        {"machine", network.device().name},
        {"threads", network.device().threads},
        {"isa", to_string(network.device().isa)},
        {"inputs", shapes},
        {"latency_ms", {{"median", stat.median}, {"min", stat.min}, {"max", stat.max}, {"p99", p99}}},
        {"first_ms", first_ms},
        {"runs", repeat},
        {"load_ms", network.load_ms()},
        {"peak_memory_bytes", peak},
        {"activation_bytes", network.pool().bytes_in_use_max()}};
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("{}, {} threads, {}\n", network.device().name, network.device().threads, to_string(network.device().isa));
  for (size_t i = 0; i < inputs.size(); ++i)
    fmt::print("{:<14}{} {}\n", i == 0 ? "inputs" : "", network.inputs()[i].name, shape_text(inputs[i]));
  fmt::print("{:<14}median {:.3f} ms, min {:.3f}, max {:.3f}, p99 {:.3f} of {} runs; first {:.3f}\n", "latency",
             stat.median, stat.min, stat.max, p99, repeat, first_ms);
  fmt::print("{:<14}{:.1f} ms\n", "load", network.load_ms());
  if (peak > 0)
    fmt::print("{:<14}{}, activations {}\n", "peak memory", format_bytes(peak),
               format_bytes(static_cast<int64_t>(network.pool().bytes_in_use_max())));
  return {};
}

Result<> profile_network(const NetworkFlags& flags) {
  BOLIDE_TRY(NetworkSession network, NetworkSession::open(flags.path, {.threads = flags.threads,
                                                                       .skip_passes = split_names(flags.skip_passes)}));
  BOLIDE_TRY(const std::vector<AnyValue> inputs, network_inputs(network, flags, true));
  struct Row {
    std::string op, shape;
    double seconds = 0;
    int count = 0;
  };
  std::map<std::string, Row> rows;
  std::vector<std::string> order;
  const auto see = [&](const Graph& graph, NodeId id, std::span<const AnyValue* const>, std::span<const AnyValue> out,
                       double seconds) {
    const Node& node = graph.node(id);
    if (!node.bodies.empty()) seconds = 0;  // its bodies' nodes have their own
    const std::string key(flags.by == "node" ? node.name : std::string(op_name(node.op)));
    const auto [it, fresh] = rows.try_emplace(key);
    if (fresh) order.push_back(key);
    it->second.op = op_name(node.op);
    if (!out.empty()) it->second.shape = shape_text(out[0]);
    it->second.seconds += seconds, ++it->second.count;
  };
  const GeneralObserver observer(see);
  BOLIDE_TRY(network.run(inputs));
  constexpr int kRepeat = 3;
  const int repeat = flags.repeat > 0 ? flags.repeat : kRepeat;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) BOLIDE_TRY(network.run(inputs, &observer));
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeat;
  double total = 0;
  for (const auto& [key, row] : rows) total += row.seconds / repeat;
  if (flags.by != "node")
    std::stable_sort(order.begin(), order.end(),
                     [&](const auto& a, const auto& b) { return rows[a].seconds > rows[b].seconds; });
  const bool by_node = flags.by == "node";
  Table table(by_node ? std::vector<Table::Column>{{"node"}, {"operator"}, {"output"}, {"us", 1}, {"share_percent", 1}}
                      : std::vector<Table::Column>{{"operator"}, {"count", 0}, {"us", 1}, {"share_percent", 1}});
  for (const std::string& key : order) {
    const Row& row = rows[key];
    const double us = row.seconds / repeat * 1e6, share = total > 0 ? row.seconds / repeat / total * 100 : 0;
    if (by_node)
      table.add({key, row.op, row.shape, us, share});
    else
      table.add({key, static_cast<double>(row.count / repeat), us, share});
  }
  if (flags.json) {
    const ordered_json out = {{"model", flags.path},
                              {"wall_us", wall * 1e6},
                              {fmt::format("by_{}", flags.by), ordered_json::parse(table.to_json())}};
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("one run: {:.1f} us, {:.1f} us of it in kernels\n{}", wall * 1e6, total * 1e6, table.to_text());
  return {};
}

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
