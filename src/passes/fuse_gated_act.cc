// GatedAct(Slice(x, 0, F), Slice(x, F, F)) > GatedAct(x), once gate and up are one product.
#include "passes/pass.h"

namespace bolide {

Result<int> fuse_gated_act(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  for (const NodeId id : order) {
    Node& node = graph.node(id);
    if (!std::holds_alternative<GatedAct>(node.op) || node.in.size() != 2) continue;
    const Value &gate = graph.value(node.in[0]), &up = graph.value(node.in[1]);
    if (gate.producer < 0 || up.producer < 0) continue;
    const Node &a = graph.node(gate.producer), &b = graph.node(up.producer);
    const auto *first = std::get_if<Slice>(&a.op), *second = std::get_if<Slice>(&b.op);
    if (first == nullptr || second == nullptr || a.in[0] != b.in[0]) continue;
    const ValueType& whole = graph.type(a.in[0]);
    if (first->begin != 0 || second->begin != first->count || whole.last() != Dim(2 * first->count)) continue;
    if (!kernel_exists(context, graph, node.op, std::vector{whole})) continue;
    const NodeId slices[] = {gate.producer, up.producer};
    node.in = {a.in[0]};
    const auto users = graph.users();
    for (const NodeId slice : slices)  // so that the product has one reader
      if (users[static_cast<size_t>(graph.node(slice).out[0])].empty() && !is_output(graph, graph.node(slice).out[0]))
        graph.remove(slice);
    ++rewrites;
  }
  return rewrites;
}

}  // namespace bolide
