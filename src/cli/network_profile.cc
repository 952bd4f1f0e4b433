// bolide profile of an ONNX model: where the time of a run goes, and what a first call costs beyond.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/model_flags.h"
#include "app/network.h"
#include "base/utf8.h"
#include "cli/network.h"
#include "measure/report.h"
#include "measure/statistics.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

// What one run took, and of what.
struct Call {
  double ms = 0, kernels_ms = 0;
  CachingPool::Fresh fresh;
  int64_t page_faults = 0;
};

Result<Call> call(NetworkSession& network, const std::vector<AnyValue>& inputs) {
  Call call;
  const auto see = [&](const Graph& graph, NodeId id, std::span<const AnyValue* const>, std::span<const AnyValue>,
                       double seconds) {
    if (graph.node(id).bodies.empty()) call.kernels_ms += seconds * 1e3;
  };
  const GeneralObserver observer(see);
  const CachingPool::Fresh before = network.pool().fresh();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const int64_t faults = usage.ru_minflt + usage.ru_majflt;
  const auto start = std::chrono::steady_clock::now();
  BOLIDE_TRY(network.run(inputs, &observer));
  call.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  ::getrusage(RUSAGE_SELF, &usage);
  call.page_faults = usage.ru_minflt + usage.ru_majflt - faults;
  const CachingPool::Fresh after = network.pool().fresh();
  call.fresh = {after.count - before.count, after.bytes - before.bytes, after.seconds - before.seconds};
  return call;
}

// Kernels are chosen when a model is opened, and ops find shapes as they run: a call has neither of its own.
ordered_json to_json(const Call& call) {
  return {{"ms", call.ms},
          {"kernels_ms", call.kernels_ms},
          {"allocator_ms", call.fresh.seconds * 1e3},
          {"allocations", call.fresh.count},
          {"allocated_bytes", call.fresh.bytes},
          {"page_faults", call.page_faults},
          {"kernel_choice_ms", 0},
          {"dispatch_ms", call.ms - call.kernels_ms}};
}
void print_call(std::string_view name, const Call& call) {
  fmt::print(
      "{:<14}{:.3f} ms: {:.3f} in operators with their shapes, {:.3f} between them; of it {:.3f} for {} new blocks "
      "({}), {} page faults\n",
      name, call.ms, call.kernels_ms, call.ms - call.kernels_ms, call.fresh.seconds * 1e3, call.fresh.count,
      format_bytes(static_cast<int64_t>(call.fresh.bytes)), call.page_faults);
}

// What runs a node: the kernel that was made ready for it, or the reference.
std::string kernel_of(const NetworkSession& network, const Graph& graph, NodeId node) {
  if (network.on_gpu() != nullptr) return network.on_gpu()->where(node);
  const PreparedOp* prepared = network.shared_model()->interpreter().prepared(graph, node);
  return prepared != nullptr ? std::string(prepared->kernel()) : "reference";
}

}  // namespace

Result<> profile_network(const NetworkFlags& flags) {
  BOLIDE_TRY(NetworkSession network, open_network(flags));
  BOLIDE_TRY(const std::vector<AnyValue> inputs, network_inputs(network, flags, true));
  struct Row {
    std::string op, shape, kernel;
    std::vector<double> seconds;  // of each run
    int count = 0;
  };
  std::map<std::string, Row> rows;
  std::vector<std::string> order;
  constexpr int kRepeat = 3;
  const int repeat = flags.repeat > 0 ? flags.repeat : kRepeat;
  int run = 0;
  const auto see = [&](const Graph& graph, NodeId id, std::span<const AnyValue* const>, std::span<const AnyValue> out,
                       double seconds) {
    const Node& node = graph.node(id);
    if (!node.bodies.empty()) seconds = 0;  // its bodies' nodes have their own
    const std::string op(op_name(node.op)), kernel = kernel_of(network, graph, id);
    const std::string key = flags.by == "node" ? node.name : flags.by == "kernel" ? op + " " + kernel : op;
    const auto [it, fresh] = rows.try_emplace(key);
    if (fresh) order.push_back(key);
    it->second.op = op, it->second.kernel = kernel;
    if (!out.empty()) it->second.shape = shape_text(out[0]);
    it->second.seconds.resize(static_cast<size_t>(repeat));
    it->second.seconds[static_cast<size_t>(run)] += seconds, ++it->second.count;
  };
  const GeneralObserver observer(see);
  BOLIDE_TRY(const Call first, call(network, inputs));
  BOLIDE_TRY(call(network, inputs));
  BOLIDE_TRY(const Call steady, call(network, inputs));
  std::vector<double> walls;
  for (; run < repeat; ++run) {
    const auto start = std::chrono::steady_clock::now();
    BOLIDE_TRY(network.run(inputs, &observer));
    walls.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const double wall = median(walls);
  std::map<std::string, Stat> taken;
  double total = 0;
  for (const auto& [key, row] : rows) total += (taken[key] = summarise(row.seconds)).median;
  if (flags.by != "node")
    std::stable_sort(order.begin(), order.end(),
                     [&](const auto& a, const auto& b) { return taken[a].median > taken[b].median; });
  const bool by_node = flags.by == "node", by_kernel = flags.by == "kernel";
  using Columns = std::vector<Table::Column>;
  Table table(
      by_node
          ? Columns{{"node"}, {"operator"}, {"kernel"}, {"output"}, {"us", 1}, {"share_percent", 1}, {"least_us", 1}}
      : by_kernel ? Columns{{"operator"}, {"kernel"}, {"count", 0}, {"us", 1}, {"share_percent", 1}, {"least_us", 1}}
                  : Columns{{"operator"}, {"count", 0}, {"us", 1}, {"share_percent", 1}, {"least_us", 1}});
  for (const std::string& key : order) {
    const Row& row = rows[key];
    const double us = taken[key].median * 1e6, least = taken[key].min * 1e6;
    const double share = total > 0 ? taken[key].median / total * 100 : 0;
    const double count = static_cast<double>(row.count) / repeat;
    if (by_node)
      table.add({flags.json ? key : shortened(key), row.op, row.kernel, row.shape, us, share, least});
    else if (by_kernel)
      table.add({row.op, row.kernel, count, us, share, least});
    else
      table.add({key, count, us, share, least});
  }
  if (flags.json) {
    const ordered_json out = {{"model", flags.path},
                              {"machine", network.device().name},
                              {"threads", network.device().threads},
                              {"isa", to_string(network.device().isa)},
                              {"load_ms", network.load_ms()},
                              {"first_call", to_json(first)},
                              {"steady_call", to_json(steady)},
                              {"crossings", crossings_json(network)},
                              {"wall_us", wall * 1e6},
                              {fmt::format("by_{}", flags.by), ordered_json::parse(table.to_json())}};
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("{}, {} threads, {}; load {:.1f} ms\n", network.device().name, network.device().threads,
             to_string(network.device().isa), network.load_ms());
  print_crossings(network);
  print_call("first call", first);
  print_call("steady call", steady);
  fmt::print("median of {}   {:.3f} ms, {:.3f} in operators\n\n{}", repeat, wall * 1e3, total * 1e3,
             printable(table.to_text(), true));
  return {};
}

}  // namespace bolide::cli
