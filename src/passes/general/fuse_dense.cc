// fuse_dense: MatMul with a constant matrix, its bias, the sum with a value of its shape, and an activation become
// bolide.Dense.
#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

// What Dense calls the activation that `id` is; empty: none.
std::string activation_of(const Rewriter& r, NodeId id, ValueId x) {
  if (id < 0 || !r.alive(id) || r.node(id).out.size() != 1 || r.node(id).in.empty() || r.in(id, 0) != x) return {};
  for (const std::string_view name : {"Relu", "Sigmoid", "Tanh", "HardSwish"})
    if (r.is(id, name)) return std::string(name);
  if (r.is(id, "Gelu")) {
    const auto how = r.attributes(id).text("approximate", "none");
    return !how ? "" : *how == "tanh" ? "GeluTanh" : *how == "none" ? "Gelu" : "";
  }
  if (r.is(id, "Swish")) return r.attributes(id).number("alpha", 1).value_or(0) == 1 ? "Silu" : "";
  if (r.in(id, 1) != kNoValue) return {};
  if (r.is(id, "Gelu", "com.microsoft")) return "Gelu";
  return r.is(id, "FastGelu", "com.microsoft") ? "GeluTanh" : "";
}

bool is_row(const Rewriter& r, ValueId value, int64_t N) {
  const Tensor* t = value == kNoValue ? nullptr : r.constant(value);
  return t != nullptr && t->dtype() == DType::kF32 && t->shape() == Shape{N};
}

bool dense(Rewriter& r, NodeId id) {
  const Tensor* w = r.node(id).in.size() == 2 ? r.constant(r.in(id, 1)) : nullptr;
  if (w == nullptr || w->rank() != 2 || w->dtype() != DType::kF32 || r.facts(r.in(id, 0)).rank() < 1) return false;
  const int64_t N = w->dim(1);
  ValueId bias = kNoValue, residual = kNoValue;
  std::string activation;
  NodeId place = id;
  const auto sum_of = [&](ValueId y) {
    const NodeId user = r.only_user(y);
    return r.is(user, "Add") && r.op(user).version >= 7 && r.node(user).in.size() == 2 ? user : NodeId{-1};
  };
  const auto other_of = [&](NodeId sum, ValueId y) { return r.in(sum, 0) == y ? r.in(sum, 1) : r.in(sum, 0); };
  if (const NodeId sum = sum_of(r.out(id)); sum >= 0 && is_row(r, other_of(sum, r.out(id)), N)) {
    bias = other_of(sum, r.out(id));
    place = sum;
  } else {
    const NodeId user = r.only_user(r.out(id));
    for (const auto& [name, as] : {std::pair("BiasGelu", "Gelu"), std::pair("FastGelu", "GeluTanh")}) {
      if (!r.is(user, name, "com.microsoft") || r.in(user, 0) != r.out(id) || !is_row(r, r.in(user, 1), N)) continue;
      bias = r.in(user, 1), activation = as;
      place = user;
    }
  }
  if (activation.empty()) {
    const ValueId y = r.out(place);
    if (const NodeId sum = sum_of(y); sum >= 0) {
      const ValueId other = other_of(sum, y);
      const Facts &a = r.facts(y), &b = r.facts(other);
      if (other != y && a.dims && b.dims && *a.dims == *b.dims && b.dtype == DType::kF32) residual = other, place = sum;
    }
    const NodeId last = r.only_user(r.out(place));
    activation = activation_of(r, last, r.out(place));
    if (!activation.empty()) place = last;
  }
  if (place == id) return false;
  std::vector<ValueId> in = {r.in(id, 0), r.in(id, 1)};
  if (bias != kNoValue || residual != kNoValue) in.push_back(bias);
  if (residual != kNoValue) in.push_back(residual);
  NamedAttributes attributes;
  if (!activation.empty()) attributes.emplace_back("activation", activation);
  const NodeId made = r.emit(place, "bolide", "Dense", 1, std::move(in), std::move(attributes));
  r.replace(r.out(place), r.out(made));
  return true;
}

}  // namespace

Result<int> fuse_dense(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) -> Result<int> {
    int rewrites = 0;
    for (const NodeId id : r.order())
      if (r.is(id, "MatMul")) rewrites += dense(r, id);
    return rewrites;
  });
}

}  // namespace bolide
