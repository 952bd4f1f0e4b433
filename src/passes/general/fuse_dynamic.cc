// fuse_dynamic: what quantisers of activations at run time leave: DynamicQuantizeLinear, MatMulInteger or ConvInteger
// with constant weights, Cast, the product with both scales, the sum with a bias. The matrix product becomes
// MatMulIntegerToFloat; the convolution one of the floats that the codes mean, which what follows goes into; integers
// that are added to its sums become floats, too.
#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

// The product of `id`'s sums of integers with the scales of what it multiplied.
struct Scaled {
  NodeId node = -1;
  ValueId x_scale = kNoValue, w_scale = kNoValue;
  ValueId scales = kNoValue;  // both at once
  ValueId term = kNoValue;    // integers that the sums get before they are scaled
};

std::optional<Scaled> scaled(const Rewriter& r, NodeId id) {
  ValueId term = kNoValue;
  NodeId cast = r.only_user(r.out(id));
  if (r.is(cast, "Add")) {
    term = r.in(cast, 0) == r.out(id) ? r.in(cast, 1) : r.in(cast, 0);
    if (term == r.out(id)) return std::nullopt;
    cast = r.only_user(r.out(cast));
  }
  if (!r.is(cast, "Cast") || r.integer(cast, "to", 0) != 1) return std::nullopt;
  Scaled found{.node = r.only_user(r.out(cast)), .term = term};
  if (!r.is(found.node, "Mul") || r.op(found.node).version < 7) return std::nullopt;
  found.scales = r.in(found.node, 0) == r.out(cast) ? r.in(found.node, 1) : r.in(found.node, 0);
  const NodeId both = r.made_by(found.scales, "Mul");
  if (both < 0 || r.op(both).version < 7) return std::nullopt;
  found.x_scale = r.in(both, 0), found.w_scale = r.in(both, 1);
  if (r.constant(found.x_scale) != nullptr) std::swap(found.x_scale, found.w_scale);
  // The scale of DynamicQuantizeLinear is one for all.
  const NodeId range = r.graph().value(found.x_scale).producer;
  if (range < 0 || !r.is(range, "DynamicQuantizeLinear") || r.node(range).out.size() != 3 ||
      r.node(range).out[1] != found.x_scale || r.in(id, 0) != r.node(range).out[0])
    return std::nullopt;
  return found;
}

bool product(Rewriter& r, NodeId id) {
  const Tensor* w = r.constant(r.in(id, 1));
  if (w == nullptr || w->rank() != 2) return false;
  const auto found = scaled(r, id);
  const auto is_row = [&](ValueId value) {
    const Tensor* t = r.constant(value);
    return t != nullptr && t->dtype() == DType::kF32 && t->rank() <= 1 &&
           (t->elements() == 1 || t->elements() == w->dim(1));
  };
  if (!found || found->term != kNoValue || !is_row(found->w_scale)) return false;
  NodeId place = found->node;
  ValueId bias = kNoValue;
  const NodeId sum = r.only_user(r.out(place));
  if (r.is(sum, "Add") && r.op(sum).version >= 7) {
    const ValueId other = r.in(sum, 0) == r.out(place) ? r.in(sum, 1) : r.in(sum, 0);
    if (other != r.out(place) && is_row(other)) bias = other, place = sum;
  }
  const NodeId made =
      r.emit(place, "com.microsoft", "MatMulIntegerToFloat", 1,
             {r.in(id, 0), r.in(id, 1), found->x_scale, found->w_scale, r.in(id, 2), r.in(id, 3), bias});
  r.table().set(r.out(made), r.facts(r.out(place)));
  r.replace(r.out(place), r.out(made));
  return true;
}

// The one element of a constant of codes or of f32; nullopt: it is none.
std::optional<float> one_number(const Tensor* t) {
  if (t == nullptr || t->elements() != 1) return std::nullopt;
  if (t->dtype() == DType::kF32) return t->as<float>()[0];
  if (t->dtype() == DType::kI8) return t->as<int8_t>()[0];
  if (t->dtype() == DType::kU8) return t->as<uint8_t>()[0];
  return std::nullopt;
}

template <class Code>
void decode(std::span<const Code> codes, float zero, float scale, std::span<float> to) {
  for (size_t i = 0; i < codes.size(); ++i) to[i] = (static_cast<float>(codes[i]) - zero) * scale;
}

Result<bool> convolution(Rewriter& r, NodeId id) {
  const ValueId codes = r.in(id, 1);
  const Tensor* w = r.constant(codes);
  if (w == nullptr || w->rank() < 3 || (w->dtype() != DType::kI8 && w->dtype() != DType::kU8)) return false;
  const auto found = scaled(r, id);
  if (!found) return false;
  const auto scale = one_number(r.constant(found->w_scale));
  const auto zero = r.in(id, 3) == kNoValue ? std::optional(0.0f) : one_number(r.constant(r.in(id, 3)));
  // A scale of higher rank than the convolution's would give the result its own.
  if (!scale || !zero || r.constant(found->w_scale)->rank() > w->rank()) return false;
  BOLIDE_TRY(Tensor plain, Tensor::make(DType::kF32, w->shape()));
  if (w->dtype() == DType::kI8)
    decode(w->as<int8_t>(), *zero, *scale, plain.mutate<float>());
  else
    decode(w->as<uint8_t>(), *zero, *scale, plain.mutate<float>());
  const NodeId values =
      r.emit(id, "", "DequantizeLinear", 13,
             r.in(id, 2) == kNoValue ? std::vector<ValueId>{r.in(id, 0), found->x_scale}
                                     : std::vector<ValueId>{r.in(id, 0), found->x_scale, r.in(id, 2)});
  Facts facts = r.facts(r.in(id, 0));
  facts.dtype = DType::kF32;
  r.table().set(r.out(values), std::move(facts));
  NamedAttributes attributes;
  for (const auto& [name, value] : r.attributes(id).all()) attributes.emplace_back(name, value);
  const ValueId weights = r.add_constant(r.node(id).name + ".weights", std::move(plain));
  const NodeId made = r.emit(found->node, "", "Conv", 11, {r.out(values), weights}, std::move(attributes));
  const Facts after = r.facts(r.out(found->node));
  ValueId out = r.out(made);
  if (found->term != kNoValue) {
    const ValueId floats = r.out(r.emit(found->node, "", "Cast", 13, {found->term}, {{"to", int64_t{1}}}));
    const ValueId term = r.out(r.emit(found->node, "", "Mul", 14, {floats, found->scales}));
    Facts before = r.facts(r.out(id));
    before.dtype = DType::kF32;
    r.table().set(out, std::move(before));
    out = r.out(r.emit(found->node, "", "Add", 14, {out, term}));
  }
  r.table().set(out, after);
  r.replace(r.out(found->node), out);
  r.drop_if_unread(codes);
  return true;
}

Result<int> fuse(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.alive(id)) continue;
    bool done = false;
    if (r.is(id, "MatMulInteger")) done = product(r, id);
    if (r.is(id, "ConvInteger")) {
      BOLIDE_TRY(done, convolution(r, id));
    }
    rewrites += done ? 1 : 0;
  }
  return rewrites;
}

}  // namespace

Result<int> fuse_dynamic(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return fuse(r); });
}

}  // namespace bolide
