// find_attention: softmax(scale q k^T + mask) v of four dims becomes Attention; where q, k and v are heads split off
// from [B, S, heads * D] and the result's heads are joined again, Attention of three dims.
// merge_attention_inputs: such an Attention whose q, k and v are products of one value with constants, and their sums
// with biases, becomes com.microsoft.Attention; and one whose q, k and v are picked from one such product whose columns
// are [3, heads, D].
#include <algorithm>
#include <array>
#include <cmath>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr std::array kSplit = {0, 2, 1, 3};        // [B, S, H, D] > [B, H, S, D]
constexpr std::array kSplitTurned = {0, 2, 3, 1};  // [B, S, H, D] > [B, H, D, S]
constexpr std::array kTurned = {0, 1, 3, 2};

bool is_transpose(const Rewriter& r, NodeId id, const std::array<int, 4>& perm) {
  if (id < 0) return false;
  const Numbers own = r.integers(id, "perm");
  return own.size() == 4 && std::equal(own.begin(), own.end(), perm.begin());
}

// Takes products with one number off `value` into `scale`.
ValueId unscaled(const Rewriter& r, ValueId value, double& scale) {
  for (;;) {
    const NodeId product = r.made_by(value, "Mul"), over = r.made_by(value, "Div");
    if (product >= 0 && r.op(product).version >= 7) {
      const auto right = r.scalar_beside(r.in(product, 1), r.in(product, 0));
      const auto left = r.scalar_beside(r.in(product, 0), r.in(product, 1));
      if (!left && !right) return value;
      scale *= right ? *right : *left;
      value = r.in(product, right ? 0 : 1);
    } else if (over >= 0 && r.op(over).version >= 7) {
      const auto by = r.scalar_beside(r.in(over, 1), r.in(over, 0));
      if (!by || *by == 0) return value;
      scale /= *by;
      value = r.in(over, 0);
    } else {
      return value;
    }
  }
}

// [B, S, heads * D] that `value` [B, heads, S, D] is split off from; kNoValue if it is made otherwise.
ValueId joined(const Rewriter& r, ValueId value) {
  const NodeId transpose = r.made_by(value, "Transpose");
  if (!is_transpose(r, transpose, kSplit)) return kNoValue;
  const NodeId reshape = r.made_by(r.in(transpose, 0), "Reshape");
  if (reshape < 0) return kNoValue;
  const ValueId whole = r.in(reshape, 0);
  const Facts &from = r.facts(whole), &to = r.facts(r.out(reshape));
  if (from.rank() != 3 || to.rank() != 4) return kNoValue;
  const Numbers &a = *from.dims, &b = *to.dims;
  return a[0] == b[0] && a[1] == b[1] && is_number(b[2]) && is_number(b[3]) && b[2] * b[3] == a[2] ? whole : kNoValue;
}

// Joins the heads of the result of `id` again: the Reshape that does; -1 if something else reads it.
NodeId joining(const Rewriter& r, NodeId id) {
  const NodeId transpose = r.only_user(r.out(id));
  if (!r.is(transpose, "Transpose") || !is_transpose(r, transpose, kSplit)) return -1;
  const NodeId reshape = r.only_user(r.out(transpose));
  if (!r.is(reshape, "Reshape")) return -1;
  const Facts &from = r.facts(r.out(transpose)), &to = r.facts(r.out(reshape));
  if (from.rank() != 4 || to.rank() != 3) return -1;
  const Numbers &a = *from.dims, &b = *to.dims;
  return a[0] == b[0] && a[1] == b[1] && is_number(a[2]) && is_number(a[3]) && a[2] * a[3] == b[2] ? reshape : -1;
}

// The keys [B, H, L, D] that `value` [B, H, D, L] has turned; a node of its own where there is none.
ValueId keys_of(Rewriter& r, ValueId value, NodeId place) {
  const NodeId transpose = r.made_by(value, "Transpose");
  if (is_transpose(r, transpose, kTurned)) return r.in(transpose, 0);
  if (!is_transpose(r, transpose, kSplitTurned)) return kNoValue;
  const Numbers perm(kSplit.begin(), kSplit.end());
  return r.out(r.emit(place, "", "Transpose", 13, {r.in(transpose, 0)}, {{"perm", perm}}));
}

// The mask that is added to scores [B, H, S, L], if it broadcasts to them and changes none of their dims.
bool is_mask(const Facts& mask, const Facts& scores) {
  if (!mask.dims || mask.rank() < 2 || mask.rank() > 4 || mask.dtype != scores.dtype || scores.rank() != 4)
    return false;
  for (size_t i = 1; i <= mask.dims->size(); ++i) {
    const int64_t dim = (*mask.dims)[mask.dims->size() - i], of = (*scores.dims)[4 - i];
    if (dim != of && (dim != 1 || i == 1)) return false;
  }
  return true;
}

bool attention(Rewriter& r, NodeId id) {
  const NodeId softmax = r.made_by(r.in(id, 0), "Softmax");
  if (softmax < 0 || r.only_user(r.out(softmax)) != id) return false;
  const int64_t axis = r.integer(softmax, "axis", r.op(softmax).version < 13 ? 1 : -1);
  if (axis != -1 && axis != 3) return false;
  ValueId scores = r.in(softmax, 0), mask = kNoValue;
  if (const NodeId sum = r.made_by(scores, "Add"); sum >= 0 && r.op(sum).version >= 7) {
    for (const size_t i : {0, 1}) {
      double ignored = 1;
      if (r.made_by(unscaled(r, r.in(sum, i), ignored), "MatMul") < 0) continue;
      scores = r.in(sum, i), mask = r.in(sum, 1 - i);
      break;
    }
    if (mask == kNoValue || !is_mask(r.facts(mask), r.facts(scores))) return false;
  }
  double scale = 1;
  const NodeId product = r.made_by(unscaled(r, scores, scale), "MatMul");
  if (product < 0) return false;
  const ValueId q = unscaled(r, r.in(product, 0), scale), turned = unscaled(r, r.in(product, 1), scale),
                v = r.in(id, 1);
  const Facts &a = r.facts(q), &b = r.facts(turned), &c = r.facts(v);
  if (a.rank() != 4 || b.rank() != 4 || c.rank() != 4 || !is_float(a.dtype)) return false;
  for (const size_t i : {0, 1})
    if ((*a.dims)[i] != (*b.dims)[i] || (*a.dims)[i] != (*c.dims)[i]) return false;
  const ValueId k = keys_of(r, turned, id);
  if (k == kNoValue) return false;
  std::vector<ValueId> in = {q, k, v};
  if (mask != kNoValue) in.push_back(mask);
  NamedAttributes attributes;
  NodeId place = id;
  const ValueId whole_q = joined(r, q), whole_k = joined(r, k), whole_v = joined(r, v);
  const NodeId reshape = joining(r, id);
  const int64_t heads = (*r.facts(q).dims)[1];
  if (whole_q != kNoValue && whole_k != kNoValue && whole_v != kNoValue && reshape >= 0 && is_number(heads)) {
    in[0] = unscaled(r, whole_q, scale), in[1] = unscaled(r, whole_k, scale), in[2] = whole_v;
    attributes = {{"q_num_heads", heads}, {"kv_num_heads", heads}};
    place = reshape;
  }
  const float narrow = static_cast<float>(scale);
  if (!std::isfinite(narrow)) return false;
  attributes.emplace_back("scale", narrow);
  const Facts result = r.facts(r.out(place));
  const NodeId made = r.emit(place, "", "Attention", 23, std::move(in), std::move(attributes));
  r.table().set(r.out(made), result);
  r.replace(r.out(place), r.out(made));
  if (const NodeId own = r.graph().value(k).producer; own >= 0) r.remove_if_dead(own);
  return true;
}

Result<int> attentions(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order())
    if (r.is(id, "MatMul")) rewrites += attention(r, id);
  return rewrites;
}

// x W + b, with constants of f32.
struct Projection {
  ValueId x = kNoValue;
  const Tensor *weights = nullptr, *bias = nullptr;
};
std::optional<Projection> projection_of(const Rewriter& r, ValueId value, NodeId reader) {
  if (r.only_user(value) != reader) return std::nullopt;
  Projection to;
  NodeId product = r.made_by(value, "MatMul");
  if (const NodeId sum = r.made_by(value, "Add"); sum >= 0 && r.op(sum).version >= 7) {
    for (const size_t i : {0, 1}) {
      to.bias = r.constant(r.in(sum, i));
      product = r.made_by(r.in(sum, 1 - i), "MatMul");
      if (to.bias != nullptr && product >= 0) break;
    }
    if (to.bias == nullptr || product < 0 || r.only_user(r.out(product)) != sum) return std::nullopt;
  }
  if (product < 0) return std::nullopt;
  to.x = r.in(product, 0);
  to.weights = r.constant(r.in(product, 1));
  if (to.weights == nullptr || to.weights->rank() != 2 || to.weights->dtype() != DType::kF32) return std::nullopt;
  if (to.bias != nullptr && (to.bias->dtype() != DType::kF32 || to.bias->shape() != Shape{to.weights->dim(1)}))
    return std::nullopt;
  return to;
}

Result<bool> merge(Rewriter& r, NodeId id) {
  const int64_t heads = r.integer(id, "q_num_heads", 0);
  if (heads < 1 || heads != r.integer(id, "kv_num_heads", 0) || r.node(id).out.size() != 1) return false;
  if (r.node(id).in.size() > 4 || !r.attributes(id).has("scale")) return false;
  const auto scale = r.attributes(id).number("scale", 0);
  if (!scale || *scale == 0) return false;
  std::array<Projection, 3> parts;
  int64_t columns = 0;
  for (size_t i = 0; i < 3; ++i) {
    const auto part = projection_of(r, r.in(id, i), id);
    if (!part) return false;
    parts[i] = *part;
    columns += part->weights->dim(1);
    if (parts[i].x != parts[0].x || parts[i].weights->dim(0) != parts[0].weights->dim(0)) return false;
  }
  const int64_t rows = parts[0].weights->dim(0);
  const Facts& x = r.facts(parts[0].x);
  if (x.rank() != 3 || (*x.dims)[2] != rows || parts[0].weights->dim(1) != parts[1].weights->dim(1)) return false;
  const ValueId mask = r.in(id, 3);
  if (mask != kNoValue) {
    const Facts& m = r.facts(mask);
    if (m.rank() != 4 || ((*m.dims)[2] != (*x.dims)[1] && (*m.dims)[2] != 1)) return false;
  }
  BOLIDE_TRY(Tensor weights, Tensor::make(DType::kF32, {rows, columns}));
  BOLIDE_TRY(Tensor bias, Tensor::make(DType::kF32, {columns}));
  Numbers sizes;
  int64_t at = 0;
  for (const Projection& part : parts) {
    const int64_t own = part.weights->dim(1);
    for (int64_t k = 0; k < rows; ++k)
      std::copy_n(part.weights->as<float>().data() + k * own, own, weights.mutate<float>().data() + k * columns + at);
    const auto to = bias.mutate<float>().subspan(static_cast<size_t>(at), static_cast<size_t>(own));
    if (part.bias != nullptr)
      std::copy_n(part.bias->as<float>().data(), own, to.data());
    else
      std::fill(to.begin(), to.end(), 0.0f);
    sizes.push_back(own);
    at += own;
  }
  const std::string name = r.node(id).name;
  std::vector<ValueId> in = {parts[0].x, r.add_constant(name + ".weights", std::move(weights)),
                             r.add_constant(name + ".bias", std::move(bias))};
  if (mask != kNoValue) in.insert(in.end(), {kNoValue, kNoValue, mask});
  const Facts result = r.facts(r.out(id));
  const NodeId made = r.emit(id, "com.microsoft", "Attention", 1, std::move(in),
                             {{"num_heads", heads}, {"scale", *scale}, {"qkv_hidden_sizes", sizes}});
  r.table().set(r.out(made), result);
  r.replace(r.out(id), r.out(made));
  return true;
}

// The value [B, S, 3, heads, D] that q, k and v of `id` are picked from, as exporters of vision transformers write it:
// turned to [3, B, heads, S, D], then element 0, 1 and 2; kNoValue if they are made otherwise.
ValueId packed_inputs(const Rewriter& r, NodeId id) {
  ValueId turned = kNoValue;
  for (size_t i = 0; i < 3; ++i) {
    const NodeId pick = r.made_by(r.in(id, i), "Gather");
    if (pick < 0 || r.only_user(r.out(pick)) != id || r.integer(pick, "axis", 0) != 0) return kNoValue;
    const Facts& at = r.facts(r.in(pick, 1));
    if (at.rank() != 0 || !at.values || (*at.values)[0] != static_cast<int64_t>(i)) return kNoValue;
    if (i > 0 && r.in(pick, 0) != turned) return kNoValue;
    turned = r.in(pick, 0);
  }
  const NodeId transpose = r.made_by(turned, "Transpose");
  if (transpose < 0 || r.uses(turned) != 3 || r.integers(transpose, "perm") != Numbers{2, 0, 3, 1, 4}) return kNoValue;
  return r.in(transpose, 0);
}

bool merge_packed(Rewriter& r, NodeId id) {
  if (r.node(id).in.size() > 4 || r.node(id).out.size() != 1 || !r.attributes(id).has("scale")) return false;
  const auto scale = r.attributes(id).number("scale", 0);
  const ValueId packed = packed_inputs(r, id);
  const NodeId reshape = packed == kNoValue ? -1 : r.made_by(packed, "Reshape"), end = joining(r, id);
  if (!scale || *scale == 0 || reshape < 0 || end < 0 || r.uses(packed) != 1) return false;
  const auto part = projection_of(r, r.in(reshape, 0), reshape);
  if (!part) return false;
  const Facts &x = r.facts(part->x), &five = r.facts(packed);
  const int64_t columns = part->weights->dim(1);
  if (x.rank() != 3 || five.rank() != 5 || (*x.dims)[2] != part->weights->dim(0)) return false;
  const Numbers& d = *five.dims;
  if (d[0] != (*x.dims)[0] || d[1] != (*x.dims)[1] || d[2] != 3 || !is_number(d[3]) || !is_number(d[4]) || d[3] < 1 ||
      3 * d[3] * d[4] != columns)
    return false;
  const ValueId mask = r.in(id, 3);
  if (mask != kNoValue && r.facts(mask).rank() != 4) return false;
  const NodeId product = r.made_by(r.in(reshape, 0), "MatMul") >= 0 ? r.made_by(r.in(reshape, 0), "MatMul")
                                                                    : r.graph().value(r.in(reshape, 0)).producer;
  ValueId weights = kNoValue, bias = kNoValue;
  for (const ValueId value : r.node(product).in) {
    if (r.constant(value) == part->weights) weights = value;
    if (part->bias != nullptr && r.constant(value) == part->bias) bias = value;
    if (const NodeId inner = r.made_by(value, "MatMul"); inner >= 0) weights = r.in(inner, 1);
  }
  if (part->bias == nullptr) {
    auto zeros = Tensor::make(DType::kF32, {columns});
    if (!zeros) return false;
    std::fill_n(zeros->mutate<float>().data(), columns, 0.0f);
    bias = r.add_constant(r.node(id).name + ".bias", *std::move(zeros));
  }
  if (weights == kNoValue || bias == kNoValue) return false;
  std::vector<ValueId> in = {part->x, weights, bias};
  if (mask != kNoValue) in.insert(in.end(), {kNoValue, kNoValue, mask});
  const Facts result = r.facts(r.out(end));
  const NodeId made =
      r.emit(end, "com.microsoft", "Attention", 1, std::move(in), {{"num_heads", d[3]}, {"scale", *scale}});
  r.table().set(r.out(made), result);
  r.replace(r.out(end), r.out(made));
  return true;
}

Result<int> merges(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.is(id, "Attention")) continue;
    if (merge_packed(r, id)) {
      ++rewrites;
      continue;
    }
    BOLIDE_TRY(const bool merged, merge(r, id));
    rewrites += merged;
  }
  return rewrites;
}

}  // namespace

Result<int> find_attention(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return attentions(r); });
}
Result<int> merge_attention_inputs(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return merges(r); });
}

}  // namespace bolide
