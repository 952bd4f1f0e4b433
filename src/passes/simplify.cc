// simplify_slices: a slice of a slice > one slice; a slice of everything > its input.
// remove_dead: nodes whose results nothing reads, except those that write the cache.
#include <algorithm>

#include "passes/pass.h"

namespace bolide {

Result<int> simplify_slices(Graph& graph, const PassContext&) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  for (const NodeId id : order) {
    auto* slice = std::get_if<Slice>(&graph.node(id).op);
    if (slice == nullptr) continue;
    Node& node = graph.node(id);
    const NodeId before = graph.value(node.in[0]).producer;
    if (before >= 0) {
      if (const auto* outer = std::get_if<Slice>(&graph.node(before).op)) {
        slice->begin += outer->begin;
        node.in[0] = graph.node(before).in[0];
        ++rewrites;
      }
    }
    if (slice->begin == 0 && graph.type(node.in[0]).last() == Dim(slice->count)) {
      graph.replace_uses(node.out[0], node.in[0]);
      graph.remove(id);
      ++rewrites;
    }
  }
  return rewrites;
}

Result<int> remove_dead(Graph& graph, const PassContext&) {
  std::vector<int> readers(graph.value_count());
  for (const Output& output : graph.outputs()) ++readers[static_cast<size_t>(output.value)];
  for (const NodeId id : graph.order())
    for (const ValueId value : graph.node(id).in) ++readers[static_cast<size_t>(value)];
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  int rewrites = 0;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.node(*it);
    const bool alive =
        std::any_of(node.out.begin(), node.out.end(), [&](ValueId v) { return readers[static_cast<size_t>(v)] > 0; });
    if (alive || std::holds_alternative<KvWrite>(node.op) || std::holds_alternative<RopeKvWrite>(node.op)) continue;
    for (const ValueId value : node.in) --readers[static_cast<size_t>(value)];
    graph.remove(*it);
    ++rewrites;
  }
  return rewrites;
}

}  // namespace bolide
