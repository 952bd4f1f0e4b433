// fuse_norm_linear: RmsNorm(x) that only Linears and QkvRopes read > those with the norm in front.
// fuse_gated_linear: GatedAct(Linear(x)) of gate|up > a gated Linear.
// fuse_qkv_rope: RopeKvWrite of the three slices of one Linear > QkvRope.
// All for devices whose step is a chain of launches: the CPU has no such kernels, so nothing changes there.
#include <algorithm>

#include "passes/pass.h"

namespace bolide {
namespace {

std::vector<ValueType> types_of(const Graph& graph, std::span<const ValueId> values) {
  std::vector<ValueType> types;
  for (const ValueId value : values) types.push_back(graph.type(value));
  return types;
}

// The plain Linear that makes `value`, without residual; -1 if there is none.
NodeId linear_of(const Graph& graph, ValueId value) {
  const NodeId id = graph.value(value).producer;
  if (id < 0) return -1;
  const auto* linear = std::get_if<Linear>(&graph.node(id).op);
  return linear != nullptr && !linear->gated && !linear->has_residual ? id : -1;
}

struct NormedLinear {
  NodeId id;
  Op op;
  std::vector<ValueId> in;
};

Linear* linear_in(Op& op) {
  if (auto* qkv = std::get_if<QkvRope>(&op)) return &qkv->linear;
  return std::get_if<Linear>(&op);
}

}  // namespace

Result<int> fuse_norm_linear(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  const auto users = graph.users();
  for (const NodeId id : order) {
    const auto* norm = std::get_if<RmsNorm>(&graph.node(id).op);
    if (norm == nullptr || norm->group != 0) continue;
    const ValueId x = graph.node(id).in[0], gain = graph.node(id).in[1], normed = graph.node(id).out[0];
    if (is_output(graph, normed) || graph.value(gain).kind != ValueKind::kWeight) continue;
    const std::vector<NodeId>& readers = users[static_cast<size_t>(normed)];
    std::vector<NormedLinear> fused;
    for (const NodeId reader : readers) {
      NormedLinear made{reader, graph.node(reader).op, graph.node(reader).in};
      Linear* linear = linear_in(made.op);
      if (linear == nullptr || linear->has_norm) break;
      if (std::count(made.in.begin(), made.in.end(), normed) != 1 || made.in[0] != normed) break;
      linear->has_norm = true;
      linear->eps = norm->eps;
      made.in[0] = x;
      made.in.insert(made.in.begin() + inputs_of(*linear).gain, gain);
      if (!kernel_exists(context, graph, made.op, types_of(graph, made.in))) break;
      fused.push_back(std::move(made));
    }
    if (fused.empty() || fused.size() != readers.size()) continue;
    for (NormedLinear& made : fused) {
      graph.node(made.id).op = made.op;
      graph.node(made.id).in = std::move(made.in);
    }
    graph.remove(id);
    ++rewrites;
  }
  return rewrites;
}

Result<int> fuse_gated_linear(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  const auto users = graph.users();
  for (const NodeId id : order) {
    const auto* act = std::get_if<GatedAct>(&graph.node(id).op);
    if (act == nullptr || graph.node(id).in.size() != 1) continue;
    const ValueId product = graph.node(id).in[0];
    const NodeId linear = linear_of(graph, product);
    if (linear < 0 || users[static_cast<size_t>(product)].size() != 1 || is_output(graph, product)) continue;
    Linear fused = std::get<Linear>(graph.node(linear).op);
    fused.gated = true;
    fused.act = act->act;
    const std::vector<ValueId> in = graph.node(linear).in;
    if (!kernel_exists(context, graph, fused, types_of(graph, in))) continue;
    BOLIDE_TRY(const NodeId made, graph.insert_before(id, fused, in, graph.node(linear).name + ".act"));
    graph.replace_uses(graph.node(id).out[0], graph.node(made).out[0]);
    graph.remove(id);
    graph.remove(linear);
    ++rewrites;
  }
  return rewrites;
}

Result<int> fuse_qkv_rope(Graph& graph, const PassContext& context) {
  int rewrites = 0;
  const std::vector<NodeId> order(graph.order().begin(), graph.order().end());
  for (const NodeId id : order) {
    const auto* rope = std::get_if<RopeKvWrite>(&graph.node(id).op);
    if (rope == nullptr) continue;
    const int64_t q = rope->heads * rope->head_dim, kv = rope->kv_heads * rope->head_dim;
    const Slice want[] = {{0, q}, {q, kv}, {q + kv, kv}};
    std::vector<NodeId> slices;
    ValueId product = kNoValue;
    const auto users = graph.users();
    for (size_t i = 0; i < 3; ++i) {
      const ValueId value = graph.node(id).in[i];
      const NodeId slice = graph.value(value).producer;
      if (slice < 0 || users[static_cast<size_t>(value)].size() != 1 || is_output(graph, value)) break;
      const auto* cut = std::get_if<Slice>(&graph.node(slice).op);
      if (cut == nullptr || *cut != want[i] || (i > 0 && graph.node(slice).in[0] != product)) break;
      product = graph.node(slice).in[0];
      slices.push_back(slice);
    }
    if (slices.size() != 3 || users[static_cast<size_t>(product)].size() != 3 || is_output(graph, product)) continue;
    const NodeId linear = linear_of(graph, product);
    if (linear < 0 || graph.type(product).last() != Dim(q + 2 * kv)) continue;
    const QkvRope fused{std::get<Linear>(graph.node(linear).op), *rope};
    std::vector<ValueId> in = graph.node(linear).in;
    in.push_back(graph.node(id).in[3]);
    if (!kernel_exists(context, graph, fused, types_of(graph, in))) continue;
    BOLIDE_TRY(const NodeId made, graph.insert_before(id, fused, in, graph.node(linear).name + ".rope"));
    for (const size_t i : {0, 1}) graph.replace_uses(graph.node(id).out[i], graph.node(made).out[i]);
    for (const NodeId old : {id, slices[0], slices[1], slices[2], linear}) graph.remove(old);
    ++rewrites;
  }
  return rewrites;
}

}  // namespace bolide
