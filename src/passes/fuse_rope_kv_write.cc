// Rope(q), Rope(k) and KvWrite(k, v) of a layer > RopeKvWrite: one pass over q, k and v.
#include "passes/pass.h"

namespace bolide {
namespace {

// The Rope that makes `value` and whose result nothing else reads; -1 if there is none.
NodeId rope_of(const Graph& graph, const std::vector<std::vector<NodeId>>& users, ValueId value) {
  const NodeId id = graph.value(value).producer;
  if (id < 0 || !std::holds_alternative<Rope>(graph.node(id).op)) return -1;
  return users[static_cast<size_t>(value)].size() == 1 && !is_output(graph, value) ? id : -1;
}

}  // namespace

Result<int> fuse_rope_kv_write(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  for (const NodeId id : order) {
    const auto* attention = std::get_if<PagedAttention>(&graph.node(id).op);
    if (attention == nullptr) continue;
    const auto users = graph.users();
    const ValueId q = graph.node(id).in[0], edge = graph.node(id).in[1];
    const NodeId write = graph.value(edge).producer;
    if (write < 0 || !std::holds_alternative<KvWrite>(graph.node(write).op)) continue;
    const NodeId rope_q = rope_of(graph, users, q), rope_k = rope_of(graph, users, graph.node(write).in[0]);
    if (rope_q < 0 || rope_k < 0) continue;
    const Rope &a = std::get<Rope>(graph.node(rope_q).op), &b = std::get<Rope>(graph.node(rope_k).op);
    if (a != b || graph.node(rope_q).in[1] != graph.node(rope_k).in[1] || a.head_dim != attention->head_dim) continue;
    const KvWrite& stored = std::get<KvWrite>(graph.node(write).op);
    if (stored != KvWrite{attention->layer, attention->kv_heads, attention->head_dim}) continue;

    const RopeKvWrite fused{attention->layer, attention->heads, attention->kv_heads, attention->head_dim, a.rope};
    const std::vector<ValueId> in = {graph.node(rope_q).in[0], graph.node(rope_k).in[0], graph.node(write).in[1],
                                     graph.node(rope_q).in[1]};
    std::vector<ValueType> types;
    for (const ValueId value : in) types.push_back(graph.type(value));
    if (!kernel_exists(context, graph, fused, types)) continue;
    BOLIDE_TRY(const NodeId made, graph.insert_before(id, fused, in, graph.node(write).name + ".rope"));
    graph.replace_uses(q, graph.node(made).out[0]);
    graph.replace_uses(edge, graph.node(made).out[1]);
    for (const NodeId old : {rope_q, rope_k, write}) graph.remove(old);
    ++rewrites;
  }
  return rewrites;
}

}  // namespace bolide
