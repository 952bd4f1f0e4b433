// Shape and cost functions, one overload per op.
#include <fmt/format.h>

#include "ir/graph.h"

namespace bolide {
namespace {

using Types = std::span<const ValueType>;
using Outs = Result<std::vector<ValueType>>;

Error misfit(std::string text) { return error(Code::kInvalid, std::move(text)); }

Result<> arity(Types in, size_t want) {
  if (in.size() != want) return misfit(fmt::format("takes {} inputs, got {}", want, in.size()));
  return {};
}

// in[i] is of this rank; `what` names it in the error.
Result<> rank(Types in, size_t i, size_t want, std::string_view what) {
  if (in[i].dims.size() != want) return misfit(fmt::format("{} is {}, expected {} dims", what, to_string(in[i]), want));
  return {};
}

// f32 or bf16 [symbol, number]: what a step computes. Weights have numbers alone, so neither can stand for the other.
// bf16 values are made in graphs of such activations alone.
Result<> activations(Types in, size_t i, std::string_view what) {
  BOLIDE_TRY(rank(in, i, 2, what));
  if ((in[i].dtype != DType::kF32 && in[i].dtype != DType::kBF16) || in[i].quant != nullptr ||
      in[i].dims[0].is_number() || in[i].dims[0].factor != 1 || !in[i].dims[1].is_number())
    return misfit(fmt::format("{} is {}, expected f32[T,N]", what, to_string(in[i])));
  return {};
}

// i32 [symbol].
Result<> indices(Types in, size_t i, std::string_view what) {
  BOLIDE_TRY(rank(in, i, 1, what));
  if (in[i].dtype != DType::kI32 || in[i].dims[0].is_number() || in[i].dims[0].factor != 1)
    return misfit(fmt::format("{} is {}, expected i32[T]", what, to_string(in[i])));
  return {};
}

// The first dims of in[a] and in[b] are the same symbol.
Result<> same_rows(Types in, size_t a, size_t b, std::string_view what) {
  if (in[a].dims[0] != in[b].dims[0])
    return misfit(fmt::format("{}: {} and {} differ in their rows", what, to_string(in[a]), to_string(in[b])));
  return {};
}

Result<> of_tokens(Types in, size_t i, std::string_view what) {
  if (in[i].dims[0] != Dim(Symbol::kTokens))
    return misfit(fmt::format("{} is {}, expected a row a token", what, to_string(in[i])));
  return {};
}

Result<> matrix(Types in, size_t i, std::string_view what) {
  BOLIDE_TRY(rank(in, i, 2, what));
  if (!in[i].is_static() || in[i].dtype == DType::kNone)
    return misfit(fmt::format("{} is {}, expected a weight", what, to_string(in[i])));
  return {};
}

Result<> last_dim(Types in, size_t i, Dim want, std::string_view what) {
  if (in[i].last() != want)
    return misfit(fmt::format("{} is {}, its last dim should be {}", what, to_string(in[i]), want.factor));
  return {};
}

// f32 [want].
Result<> vector(Types in, size_t i, Dim want, std::string_view what) {
  BOLIDE_TRY(rank(in, i, 1, what));
  if (in[i].dtype != DType::kF32) return misfit(fmt::format("{} is {}, expected f32", what, to_string(in[i])));
  return last_dim(in, i, want, what);
}

Result<> same(Types in, size_t a, size_t b, std::string_view what) {
  if (in[a].dims != in[b].dims)
    return misfit(fmt::format("{}: {} and {} differ", what, to_string(in[a]), to_string(in[b])));
  return {};
}

ValueType of_type(DType dtype, std::vector<Dim> dims) { return {dtype, nullptr, std::move(dims)}; }

Outs infer(const Embed&, Types in, DType) {
  BOLIDE_TRY(arity(in, 2));
  BOLIDE_TRY(indices(in, 0, "ids"));
  BOLIDE_TRY(matrix(in, 1, "table"));
  return std::vector{f32({in[0].dims[0], in[1].dims[1]})};
}

Outs infer(const RmsNorm& op, Types in, DType act) {
  BOLIDE_TRY(arity(in, 2));
  BOLIDE_TRY(activations(in, 0, "x"));
  if (op.group == 0) {
    BOLIDE_TRY(vector(in, 1, in[0].last(), "weight"));
  } else {
    BOLIDE_TRY(vector(in, 1, op.group, "weight"));
    if (op.group < 0 || in[0].last().factor % op.group != 0)
      return misfit(fmt::format("x {} does not divide into groups of {}", to_string(in[0]), op.group));
  }
  return std::vector{of_type(act, in[0].dims)};
}

Outs infer(const AddRmsNorm&, Types in, DType act) {
  BOLIDE_TRY(arity(in, 3));
  BOLIDE_TRY(activations(in, 0, "x"));
  BOLIDE_TRY(activations(in, 1, "residual"));
  BOLIDE_TRY(same(in, 0, 1, "x and residual"));
  BOLIDE_TRY(vector(in, 2, in[0].last(), "weight"));
  return std::vector{f32(in[0].dims), of_type(act, in[0].dims)};
}

Outs infer(const LayerNorm&, Types in, DType act) {
  BOLIDE_TRY(arity(in, 3));
  BOLIDE_TRY(activations(in, 0, "x"));
  for (const size_t i : {1, 2}) BOLIDE_TRY(vector(in, i, in[0].last(), "weight and bias"));
  return std::vector{of_type(act, in[0].dims)};
}

Outs infer(const Linear& op, Types in, DType act) {
  const LinearInputs at = inputs_of(op);
  BOLIDE_TRY(arity(in, static_cast<size_t>(at.count)));
  BOLIDE_TRY(activations(in, 0, "x"));
  BOLIDE_TRY(matrix(in, 1, "weight"));
  BOLIDE_TRY(last_dim(in, 1, in[0].last(), "weight"));
  Dim n = in[1].dims[0];
  if (op.has_scale) BOLIDE_TRY(vector(in, static_cast<size_t>(at.scale), n, "scale"));
  if (op.has_bias) BOLIDE_TRY(vector(in, static_cast<size_t>(at.bias), n, "bias"));
  if (op.has_residual) BOLIDE_TRY(activations(in, static_cast<size_t>(at.residual), "residual"));
  if (op.has_norm) BOLIDE_TRY(vector(in, static_cast<size_t>(at.gain), in[0].last(), "gain"));
  if (op.gated) {
    if (op.has_residual) return misfit("a gated product has no residual");
    if (n.factor % 2 != 0) return misfit(fmt::format("weight {} does not halve", to_string(in[1])));
    n.factor /= 2;
  }
  // Rows of logits (R) are what Sample reads, and sums belong to the residual stream. (Gates are neither.)
  const bool wide = op.has_residual || (in[0].dims[0] == Dim(Symbol::kRows) && !op.gated);
  const ValueType out = of_type(wide ? DType::kF32 : act, {in[0].dims[0], n});
  if (op.has_residual) {
    const ValueType& residual = in[static_cast<size_t>(at.residual)];
    if (residual.dims != out.dims)
      return misfit(fmt::format("residual is {}, the product {}", to_string(residual), to_string(out)));
  }
  return std::vector{out};
}

// Beyond these no model comes near, and products of them fit 64 bits.
constexpr int64_t kHeadsMax = 1 << 24;
constexpr int64_t kLayersMax = 1 << 20;

Result<> heads(Types in, size_t i, int64_t count, int64_t head_dim, std::string_view what) {
  BOLIDE_TRY(activations(in, i, what));
  BOLIDE_TRY(of_tokens(in, i, what));
  if (head_dim <= 0 || count <= 0 || head_dim > kHeadsMax || count > kHeadsMax)
    return misfit(fmt::format("{} heads of {} dims: expected 1 to {} of each", count, head_dim, kHeadsMax));
  return last_dim(in, i, count * head_dim, what);
}

Result<> layer(int64_t number) {
  if (number < 0 || number >= kLayersMax)
    return misfit(fmt::format("layer {}: expected 0 to {}", number, kLayersMax - 1));
  return {};
}

Result<> rope_fits(const RopeSpec& rope, int64_t head_dim) {
  const auto half = static_cast<size_t>(rope.rotary_dim / 2);
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim || rope.inv_freq.size() != half ||
      (rope.kind == RopeKind::kLong && rope.inv_freq_long.size() != half))
    return misfit(fmt::format("rotary dim {} with {} frequencies does not fit head dim {}", rope.rotary_dim,
                              rope.inv_freq.size(), head_dim));
  return {};
}

Outs infer(const Rope& op, Types in, DType) {
  BOLIDE_TRY(arity(in, 2));
  BOLIDE_TRY(activations(in, 0, "x"));
  BOLIDE_TRY(of_tokens(in, 0, "x"));
  BOLIDE_TRY(indices(in, 1, "positions"));
  BOLIDE_TRY(same_rows(in, 0, 1, "x and positions"));
  BOLIDE_TRY(rope_fits(op.rope, op.head_dim));
  if (op.head_dim <= 0 || in[0].last().factor % op.head_dim != 0)
    return misfit(fmt::format("x {} does not divide into heads of {}", to_string(in[0]), op.head_dim));
  return std::vector{in[0]};
}

Outs infer(const KvWrite& op, Types in, DType) {
  BOLIDE_TRY(arity(in, 2));
  BOLIDE_TRY(layer(op.layer));
  BOLIDE_TRY(heads(in, 0, op.kv_heads, op.head_dim, "k"));
  BOLIDE_TRY(heads(in, 1, op.kv_heads, op.head_dim, "v"));
  return std::vector{order_edge()};
}

Outs infer(const RopeKvWrite& op, Types in, DType) {
  BOLIDE_TRY(arity(in, 4));
  BOLIDE_TRY(layer(op.layer));
  BOLIDE_TRY(heads(in, 0, op.heads, op.head_dim, "q"));
  BOLIDE_TRY(heads(in, 1, op.kv_heads, op.head_dim, "k"));
  BOLIDE_TRY(heads(in, 2, op.kv_heads, op.head_dim, "v"));
  BOLIDE_TRY(indices(in, 3, "positions"));
  BOLIDE_TRY(same_rows(in, 0, 3, "q and positions"));
  BOLIDE_TRY(rope_fits(op.rope, op.head_dim));
  return std::vector{in[0], order_edge()};
}

Outs infer(const QkvRope& op, Types in, DType act) {
  if (op.linear.gated || op.linear.has_residual) return misfit("the product is gated or has a residual");
  BOLIDE_TRY(arity(in, static_cast<size_t>(inputs_of(op.linear).count) + 1));
  BOLIDE_TRY(const std::vector<ValueType> product, infer(op.linear, in.first(in.size() - 1), act));
  BOLIDE_TRY(of_tokens(in, 0, "x"));
  const RopeKvWrite& rope = op.rope;
  for (const int64_t size : {rope.heads, rope.kv_heads, rope.head_dim})
    if (size <= 0 || size > kHeadsMax)
      return misfit(fmt::format("{} and {} heads of {} dims: expected 1 to {} of each", rope.heads, rope.kv_heads,
                                rope.head_dim, kHeadsMax));
  if (product[0].last() != Dim((rope.heads + 2 * rope.kv_heads) * rope.head_dim))
    return misfit(fmt::format("weight {} has not the rows of {} and twice {} heads of {} dims", to_string(in[1]),
                              rope.heads, rope.kv_heads, rope.head_dim));
  BOLIDE_TRY(layer(rope.layer));
  BOLIDE_TRY(indices(in, in.size() - 1, "positions"));
  BOLIDE_TRY(same_rows(in, 0, in.size() - 1, "x and positions"));
  BOLIDE_TRY(rope_fits(rope.rope, rope.head_dim));
  return std::vector{of_type(act, {in[0].dims[0], Dim(rope.heads * rope.head_dim)}), order_edge()};
}

Outs infer(const PagedAttention& op, Types in, DType) {
  BOLIDE_TRY(arity(in, 2));
  BOLIDE_TRY(layer(op.layer));
  BOLIDE_TRY(heads(in, 0, op.heads, op.head_dim, "q"));
  if (in[1] != order_edge())
    return misfit(fmt::format("{} is no order edge of a write to the cache", to_string(in[1])));
  if (op.kv_heads <= 0 || op.heads % op.kv_heads != 0)
    return misfit(fmt::format("{} query heads do not divide into {} key-value heads", op.heads, op.kv_heads));
  return std::vector{in[0]};
}

Outs infer(const GatedAct&, Types in, DType act) {
  if (in.size() == 2) {
    BOLIDE_TRY(activations(in, 0, "gate"));
    BOLIDE_TRY(activations(in, 1, "up"));
    BOLIDE_TRY(same(in, 0, 1, "gate and up"));
    return std::vector{of_type(act, in[0].dims)};
  }
  BOLIDE_TRY(arity(in, 1));
  BOLIDE_TRY(activations(in, 0, "gate|up"));
  if (in[0].last().factor % 2 != 0) return misfit(fmt::format("gate|up {} does not halve", to_string(in[0])));
  return std::vector{of_type(act, {in[0].dims[0], Dim(in[0].last().factor / 2)})};
}

Outs infer(const Activate&, Types in, DType act) {
  BOLIDE_TRY(arity(in, 1));
  BOLIDE_TRY(activations(in, 0, "x"));
  return std::vector{of_type(act, in[0].dims)};
}

Outs infer(const Add&, Types in, DType) {
  BOLIDE_TRY(arity(in, 2));
  BOLIDE_TRY(activations(in, 0, "x"));
  BOLIDE_TRY(activations(in, 1, "y"));
  BOLIDE_TRY(same(in, 0, 1, "x and y"));
  return std::vector{f32(in[0].dims)};
}

Outs infer(const MoeFfn& op, Types in, DType) {
  BOLIDE_TRY(arity(in, 4));
  BOLIDE_TRY(activations(in, 0, "x"));
  BOLIDE_TRY(matrix(in, 1, "router"));
  BOLIDE_TRY(rank(in, 2, 3, "gate|up"));
  BOLIDE_TRY(rank(in, 3, 3, "down"));
  const Dim e = in[0].last();
  if (op.experts <= 0 || op.top_k <= 0 || op.top_k > op.experts)
    return misfit(fmt::format("{} of {} experts", op.top_k, op.experts));
  const Dim f = in[3].last();
  if (!f.is_number() || f.factor > INT64_MAX / 2) return misfit(fmt::format("down is {}", to_string(in[3])));
  const std::vector<Dim> gate_up = {op.experts, Dim(2 * f.factor), e};
  const std::vector<Dim> down = {op.experts, e, f};
  if (in[1].dims != std::vector<Dim>{op.experts, e} || in[2].dims != gate_up || in[3].dims != down)
    return misfit(fmt::format("router {}, gate|up {} and down {} do not fit x {}", to_string(in[1]), to_string(in[2]),
                              to_string(in[3]), to_string(in[0])));
  return std::vector{f32(in[0].dims)};
}

Outs infer(const GatherRows&, Types in, DType) {
  BOLIDE_TRY(arity(in, 2));
  BOLIDE_TRY(activations(in, 0, "x"));
  BOLIDE_TRY(indices(in, 1, "rows"));
  return std::vector{of_type(in[0].dtype, {in[1].dims[0], in[0].last()})};
}

Outs infer(const Slice& op, Types in, DType) {
  BOLIDE_TRY(arity(in, 1));
  BOLIDE_TRY(activations(in, 0, "x"));
  const int64_t columns = in[0].last().factor;
  if (op.begin < 0 || op.count <= 0 || op.begin > columns || op.count > columns - op.begin)
    return misfit(fmt::format("{} columns from {} of {}", op.count, op.begin, to_string(in[0])));
  return std::vector{of_type(in[0].dtype, {in[0].dims[0], Dim(op.count)})};
}

Outs infer(const Sample&, Types in, DType) {
  BOLIDE_TRY(arity(in, 1));
  BOLIDE_TRY(activations(in, 0, "logits"));
  if (in[0].dims[0] != Dim(Symbol::kRows) || in[0].dtype != DType::kF32)
    return misfit(fmt::format("logits are {}, expected f32[R,V]", to_string(in[0])));
  return std::vector{i32({in[0].dims[0]}), f32({in[0].dims[0]})};
}

Outs infer(const Generic&, Types, DType) { return misfit("the types of a general op are known only when it runs"); }

}  // namespace

Result<std::vector<ValueType>> infer_types(const Op& op, std::span<const ValueType> in, DType activations) {
  if (activations != DType::kBF16)
    for (const ValueType& type : in)
      if (type.dtype == DType::kBF16 && !type.dims.empty() && !type.is_static())
        return misfit(fmt::format("{} among f32 activations", to_string(type)));
  return std::visit([&](const auto& o) { return infer(o, in, activations); }, op);
}

Cost cost_of(const Op& op, std::span<const ValueType> in, std::span<const ValueType> out, const SymbolValues& sizes,
             double context) {
  Cost cost;
  for (const ValueType& type : in) cost.bytes += static_cast<double>(type.bytes(sizes));
  for (const ValueType& type : out) cost.bytes += static_cast<double>(type.bytes(sizes));
  const auto rows = in.empty() ? 0. : static_cast<double>(in[0].at(sizes)[0]);
  if (std::holds_alternative<Slice>(op)) {
    cost.bytes = 0;
  } else if (std::holds_alternative<Embed>(op)) {
    cost.bytes = static_cast<double>(in[0].bytes(sizes)) + 2 * static_cast<double>(out[0].bytes(sizes));
  } else if (std::holds_alternative<Linear>(op) || std::holds_alternative<QkvRope>(op)) {
    if (const auto* qkv = std::get_if<QkvRope>(&op))  // the cache's new rows, two bytes an element
      cost.bytes += 4 * rows * static_cast<double>(qkv->rope.kv_heads * qkv->rope.head_dim);
    cost.flops = 2 * rows * static_cast<double>(in[1].dims[0].factor) * static_cast<double>(in[1].dims[1].factor);
  } else if (const auto* moe = std::get_if<MoeFfn>(&op)) {
    const double expert = 3 * static_cast<double>(in[3].dims[1].factor) * static_cast<double>(in[3].dims[2].factor);
    cost.flops = 2 * rows * expert * static_cast<double>(moe->top_k);
    const double used = std::min(1., rows * static_cast<double>(moe->top_k) / static_cast<double>(moe->experts));
    const auto experts_bytes = static_cast<double>(in[2].bytes(sizes) + in[3].bytes(sizes));
    cost.bytes -= experts_bytes * (1 - used);
  } else if (const auto* attention = std::get_if<PagedAttention>(&op)) {
    const double seen = attention->window > 0 ? std::min(context, static_cast<double>(attention->window)) : context;
    cost.flops = 4 * rows * seen * static_cast<double>(attention->heads) * static_cast<double>(attention->head_dim);
    // Two bytes an element: the default cache type.
    cost.bytes += 4 * static_cast<double>(sizes[Symbol::kSequences]) * seen * static_cast<double>(attention->kv_heads) *
                  static_cast<double>(attention->head_dim);
  } else {
    for (const ValueType& type : out)  // about four an element
      cost.flops += 4 * static_cast<double>(type.bytes(sizes)) * 8 / std::max(1, bits_of(type.dtype));
  }
  return cost;
}

}  // namespace bolide
