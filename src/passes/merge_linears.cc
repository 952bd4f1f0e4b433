// Linears that read the same value become one over stacked rows, and slices of its result: q, k and v; gate and up.
// Only weights of one element type and scheme merge, so a mixed checkpoint (k-quants) may keep v apart.
#include <fmt/format.h>

#include <algorithm>

#include "passes/pass.h"

namespace bolide {
namespace {

// "layers.0.attn.q", "layers.0.attn.k" > "layers.0.attn.q_k".
std::string merged_name(const Graph& graph, const std::vector<NodeId>& nodes) {
  const std::string& first = graph.node(nodes[0]).name;
  const size_t prefix = first.rfind('.') + 1;
  std::string name = first;
  for (size_t i = 1; i < nodes.size(); ++i) {
    const std::string& other = graph.node(nodes[i]).name;
    name += '_' + (other.compare(0, prefix, first, 0, prefix) == 0 ? other.substr(prefix) : other);
  }
  return name;
}

bool mergeable(const Graph& graph, NodeId a, NodeId b) {
  const Node &x = graph.node(a), &y = graph.node(b);
  if (x.in[0] != y.in[0] || x.op != y.op) return false;
  const ValueType &w = graph.type(x.in[1]), &v = graph.type(y.in[1]);
  if (w.dtype != v.dtype || w.quant != v.quant || w.dims[1] != v.dims[1]) return false;
  if (graph.value(x.in[1]).kind != ValueKind::kWeight || graph.value(y.in[1]).kind != ValueKind::kWeight) return false;
  for (size_t i = 2; i < x.in.size(); ++i)  // scale and bias
    if (graph.type(x.in[i]).dtype != graph.type(y.in[i]).dtype || graph.value(x.in[i]).kind != ValueKind::kWeight ||
        graph.value(y.in[i]).kind != ValueKind::kWeight)
      return false;
  return true;
}

// The stacked weight, scale or bias: operand `i`.
ValueId stack(Graph& graph, const std::vector<NodeId>& nodes, size_t i) {
  ValueType type = graph.type(graph.node(nodes[0]).in[i]);
  std::vector<WeightPart> parts;
  int64_t rows = 0;
  for (const NodeId id : nodes) {
    const Value& weight = graph.value(graph.node(id).in[i]);
    rows += weight.type.dims[0].factor;
    for (const WeightPart& part : weight.parts) {
      // Neighbouring rows of one tensor are one part again: a fused checkpoint tensor stays whole.
      if (!parts.empty() && parts.back().tensor == part.tensor && parts.back().begin + parts.back().rows == part.begin)
        parts.back().rows += part.rows;
      else
        parts.push_back(part);
    }
  }
  type.dims[0] = rows;
  return graph.add_weight(std::move(parts), std::move(type));
}

Result<> merge(Graph& graph, const std::vector<NodeId>& nodes) {
  const Node first = graph.node(nodes[0]);
  std::vector<ValueId> in = {first.in[0]};
  for (size_t i = 1; i < first.in.size(); ++i) in.push_back(stack(graph, nodes, i));
  BOLIDE_TRY(const NodeId merged, graph.insert_before(nodes[0], first.op, in, merged_name(graph, nodes)));
  int64_t begin = 0;
  for (const NodeId id : nodes) {
    const ValueId old = graph.node(id).out[0];
    const int64_t count = graph.type(old).last().factor;
    BOLIDE_TRY(const NodeId slice,
               graph.insert_before(nodes[0], Slice{begin, count}, std::vector{graph.node(merged).out[0]},
                                   graph.node(id).name + ".slice"));
    graph.replace_uses(old, graph.node(slice).out[0]);
    begin += count;
  }
  for (const NodeId id : nodes) graph.remove(id);
  return {};
}

}  // namespace

Result<int> merge_linears(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const auto users = graph.users();
  for (const std::vector<NodeId>& readers : users) {
    std::vector<NodeId> left;
    for (const NodeId id : readers) {
      const auto* linear = std::get_if<Linear>(&graph.node(id).op);
      if (linear != nullptr && linear->is_plain() && !linear->has_residual) left.push_back(id);
    }
    while (left.size() > 1) {
      std::vector<NodeId> group = {left[0]}, rest;
      for (size_t i = 1; i < left.size(); ++i) (mergeable(graph, left[0], left[i]) ? group : rest).push_back(left[i]);
      left = rest;
      if (group.size() < 2) continue;
      const Node& node = graph.node(group[0]);
      std::vector<ValueType> types;
      for (const ValueId value : node.in) types.push_back(graph.type(value));
      int64_t rows = 0;
      for (const NodeId id : group) rows += graph.type(graph.node(id).in[1]).dims[0].factor;
      for (size_t i = 1; i < types.size(); ++i) types[i].dims[0] = rows;
      if (!kernel_exists(context, graph, node.op, types)) continue;
      BOLIDE_TRY(merge(graph, group));
      ++rewrites;
    }
  }
  return rewrites;
}

}  // namespace bolide
