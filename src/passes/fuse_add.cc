// fuse_add_norm: Add(x, y) whose sum a RmsNorm reads > AddRmsNorm(x, y).
// fuse_linear_add: Add(Linear(...), y) with no other reader of the product > Linear with a residual.
#include "passes/pass.h"

namespace bolide {

Result<int> fuse_add_norm(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  for (const NodeId id : order) {
    const auto* norm = std::get_if<RmsNorm>(&graph.node(id).op);
    if (norm == nullptr || norm->group != 0) continue;
    const NodeId add = graph.value(graph.node(id).in[0]).producer;
    if (add < 0 || !std::holds_alternative<Add>(graph.node(add).op)) continue;
    if (graph.value(graph.node(id).in[1]).kind != ValueKind::kWeight) continue;  // made after the Add, perhaps

    const AddRmsNorm fused{norm->eps};
    const std::vector<ValueId> in = {graph.node(add).in[0], graph.node(add).in[1], graph.node(id).in[1]};
    std::vector<ValueType> types;
    for (const ValueId value : in) types.push_back(graph.type(value));
    if (!kernel_exists(context, graph, fused, types)) continue;
    // In the place of the Add: every reader of the sum comes later.
    BOLIDE_TRY(const NodeId made, graph.insert_before(add, fused, in, graph.node(id).name + ".add"));
    graph.replace_uses(graph.node(add).out[0], graph.node(made).out[0]);
    graph.replace_uses(graph.node(id).out[0], graph.node(made).out[1]);
    graph.remove(add);
    graph.remove(id);
    ++rewrites;
  }
  return rewrites;
}

Result<int> fuse_linear_add(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  for (const NodeId id : order) {
    if (!std::holds_alternative<Add>(graph.node(id).op)) continue;
    const auto users = graph.users();
    for (const size_t side : {0, 1}) {
      const ValueId product = graph.node(id).in[side], residual = graph.node(id).in[1 - side];
      const NodeId linear = graph.value(product).producer;
      if (linear < 0 || product == residual || users[static_cast<size_t>(product)].size() != 1) continue;
      if (is_output(graph, product)) continue;
      const auto* op = std::get_if<Linear>(&graph.node(linear).op);
      if (op == nullptr || op->has_residual || op->gated) continue;
      Linear fused = *op;
      fused.has_residual = true;
      std::vector<ValueId> in = graph.node(linear).in;
      in.insert(in.begin() + inputs_of(fused).residual, residual);
      std::vector<ValueType> types;
      for (const ValueId value : in) types.push_back(graph.type(value));
      if (!kernel_exists(context, graph, fused, types)) continue;
      BOLIDE_TRY(const NodeId made, graph.insert_before(id, fused, in, graph.node(linear).name + ".add"));
      graph.replace_uses(graph.node(id).out[0], graph.node(made).out[0]);
      graph.remove(linear);
      graph.remove(id);
      ++rewrites;
      break;
    }
  }
  return rewrites;
}

}  // namespace bolide
