// The op kinds of the graph: plain attribute structs in one variant. What an op computes stands here; its shape and
// cost functions in shapes.cc; its kernels in src/kernels.
//
// Shape letters (ARCHITECTURE.md): T tokens, S sequences, R rows of logits, E model dim, F ffn dim, H query heads,
// G kv heads, D head dim, V vocabulary, X experts. Activations are f32 [T, ...]; weights are [out, in], row-major, as
// checkpoints store them.
//
// `fields` names every attribute once; the printer, the parser, comparison and the engine file come from it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

namespace bolide {

class Attributes;  // ir/op_def.h
struct OpDef;

// Arithmetic of a matrix product. Activations are rounded to this type, products are summed in a wider one.
enum class Compute : uint8_t {
  kF32,   // f32 activations, weights widened exactly
  kBF16,  // bf16 activations and weights, f32 sums
  kInt8,  // activations rounded to int8 per token and group of 32 along K, block-quantised weights, int32 sums in a
          // group
};
constexpr std::array<std::string_view, 3> enum_names(Compute) { return {"f32", "bf16", "int8"}; }

// Rounding that a checkpoint asks of a Linear's input (compressed-tensors float-quantized): per token,
// s = max(max|x| / 448, 2^-23), x' = s * f8e4m3(clamp(x / s)).
enum class InputRounding : uint8_t { kNone, kF8Token };
constexpr std::array<std::string_view, 2> enum_names(InputRounding) { return {"none", "f8_token"}; }

enum class ActKind : uint8_t { kSilu, kGelu, kGeluTanh, kRelu };
constexpr std::array<std::string_view, 4> enum_names(ActKind) { return {"silu", "gelu", "gelu_tanh", "relu"}; }

// How rotary frequencies depend on the length of the sequence they are used for.
enum class RopeKind : uint8_t {
  kFixed,    // inv_freq always
  kDynamic,  // NTK-aware: theta grows once the length passes original_context
  kLong,     // longrope: inv_freq up to original_context, inv_freq_long beyond
};
constexpr std::array<std::string_view, 3> enum_names(RopeKind) { return {"fixed", "dynamic", "long"}; }

// Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in the half-split form of Hugging Face checkpoints:
// dims [0, rotary/2) pair with [rotary/2, rotary); dims from rotary on pass through.
struct RopeSpec {
  RopeKind kind = RopeKind::kFixed;
  int64_t rotary_dim = 0;            // even, at most head_dim
  std::vector<float> inv_freq;       // [rotary_dim / 2]
  std::vector<float> inv_freq_long;  // [rotary_dim / 2] for kLong, else empty
  float attention_factor = 1;        // multiplies cos and sin
  float theta = 10000;               // for kDynamic
  float factor = 1;                  // for kDynamic
  int64_t original_context = 0;      // tokens; for kDynamic and kLong

  template <class Self, class Visit>
  static void fields(Self& s, Visit&& v) {
    v("kind", s.kind), v("rotary_dim", s.rotary_dim), v("inv_freq", s.inv_freq), v("inv_freq_long", s.inv_freq_long);
    v("attention_factor", s.attention_factor), v("theta", s.theta), v("factor", s.factor);
    v("original_context", s.original_context);
  }
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

#define BOLIDE_OP(Name)                                       \
  static constexpr std::string_view kName = #Name;            \
  friend bool operator==(const Name&, const Name&) = default; \
  template <class Self, class Visit>                          \
  static void fields([[maybe_unused]] Self& s, [[maybe_unused]] Visit&& v)

// (ids i32 [T], table [V, E]) -> [T, E]. Also learned positions: (positions i32 [T], table [positions, E]).
struct Embed {
  BOLIDE_OP(Embed) {}
};
// (x [T, E], weight [E]) -> [T, E]. group 0: one norm a row; group D: one for each D elements, weight [D].
// Zhang & Sennrich 2019, arXiv:1910.07467.
struct RmsNorm {
  float eps = 1e-5f;
  int64_t group = 0;
  BOLIDE_OP(RmsNorm) { v("eps", s.eps), v("group", s.group); }
};
// (x [T, E], residual [T, E], weight [E]) -> (x + residual [T, E], norm of it [T, E]).
struct AddRmsNorm {
  float eps = 1e-5f;
  BOLIDE_OP(AddRmsNorm) { v("eps", s.eps); }
};
// (x [T, E], weight [E], bias [E]) -> [T, E]. Ba et al. 2016, arXiv:1607.06450.
struct LayerNorm {
  float eps = 1e-5f;
  BOLIDE_OP(LayerNorm) { v("eps", s.eps); }
};
// (x [T, K], weight [N, K], then those that there are: scale [N], bias [N], residual [T, N], gain [K]) ->
// x weight^T * scale + bias + residual. `scale` belongs to weights of plain 8-bit codes: one number a row.
// has_norm: x goes through RmsNorm with `gain` and `eps` first. gated: the weight's rows are gate|up, the result is
// act(first half) * second half, [T, N / 2]; bias and scale belong to the halves, and there is no residual.
struct Linear {
  Compute compute = Compute::kF32;
  InputRounding rounding = InputRounding::kNone;
  bool has_scale = false;
  bool has_bias = false;
  bool has_residual = false;
  bool has_norm = false;
  float eps = 0;
  bool gated = false;
  ActKind act = ActKind::kSilu;  // if gated
  BOLIDE_OP(Linear) {
    v("compute", s.compute), v("rounding", s.rounding), v("has_scale", s.has_scale), v("has_bias", s.has_bias);
    v("has_residual", s.has_residual), v("has_norm", s.has_norm), v("eps", s.eps), v("gated", s.gated), v("act", s.act);
  }
  // A product and nothing that only some devices' kernels fuse with it.
  bool is_plain() const { return !has_norm && !gated; }
};
// Where an input of a Linear is; -1 if it has none.
struct LinearInputs {
  int scale = -1, bias = -1, residual = -1, gain = -1;
  int count = 2;
};
constexpr LinearInputs inputs_of(const Linear& op) {
  LinearInputs at;
  if (op.has_scale) at.scale = at.count++;
  if (op.has_bias) at.bias = at.count++;
  if (op.has_residual) at.residual = at.count++;
  if (op.has_norm) at.gain = at.count++;
  return at;
}
// (x [T, H*D], positions i32 [T]) -> [T, H*D].
struct Rope {
  int64_t head_dim = 0;
  RopeSpec rope;
  BOLIDE_OP(Rope) { v("head_dim", s.head_dim), RopeSpec::fields(s.rope, v); }
};
// (k [T, G*D], v [T, G*D]) -> order edge: stores the step's keys and values in the layer's cache at the batch's slots.
struct KvWrite {
  int64_t layer = 0, kv_heads = 0, head_dim = 0;
  BOLIDE_OP(KvWrite) { v("layer", s.layer), v("kv_heads", s.kv_heads), v("head_dim", s.head_dim); }
};
// (q [T, H*D], k [T, G*D], v [T, G*D], positions i32 [T]) -> (rotated q [T, H*D], order edge). Rope of q and k, then
// KvWrite of k and v.
struct RopeKvWrite {
  int64_t layer = 0, heads = 0, kv_heads = 0, head_dim = 0;
  RopeSpec rope;
  BOLIDE_OP(RopeKvWrite) {
    v("layer", s.layer), v("heads", s.heads), v("kv_heads", s.kv_heads), v("head_dim", s.head_dim);
    RopeSpec::fields(s.rope, v);
  }
};
// Linear, then RopeKvWrite of its result, whose columns are q|k|v: (the Linear's inputs, positions i32 [T]) -> (rotated
// q [T, H*D], order edge). The Linear is neither gated nor has it a residual.
struct QkvRope {
  Linear linear;
  RopeKvWrite rope;
  BOLIDE_OP(QkvRope) { Linear::fields(s.linear, v), RopeKvWrite::fields(s.rope, v); }
};
// (q [T, H*D], order edge of the layer's write) -> [T, H*D]: causal softmax attention over the sequence's cached
// tokens, H / G query heads to a kv head. window w > 0: a token sees itself and the w - 1 before it. softcap c > 0:
// scores become c tanh(score / c). Kwon et al. 2023, arXiv:2309.06180.
struct PagedAttention {
  int64_t layer = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  int64_t window = 0;
  float softcap = 0;
  BOLIDE_OP(PagedAttention) {
    v("layer", s.layer), v("heads", s.heads), v("kv_heads", s.kv_heads), v("head_dim", s.head_dim);
    v("scale", s.scale), v("window", s.window), v("softcap", s.softcap);
  }
};
// (gate [T, F], up [T, F]) -> act(gate) * up, or (gate|up [T, 2F]) with the gate first.
struct GatedAct {
  ActKind act = ActKind::kSilu;
  BOLIDE_OP(GatedAct) { v("act", s.act); }
};
// (x) -> act(x).
struct Activate {
  ActKind act = ActKind::kGelu;
  BOLIDE_OP(Activate) { v("act", s.act); }
};
// (x, y of the same shape) -> x + y.
struct Add {
  BOLIDE_OP(Add) {}
};
// (x [T, E], router [X, E], gate|up [X, 2F, E], down [X, E, F]) -> [T, E]: the best `top_k` of X experts by softmax of
// the router's scores, weights renormalised to sum 1 if `renormalise`. Jiang et al. 2024, arXiv:2401.04088.
struct MoeFfn {
  int64_t experts = 0, top_k = 0;
  bool renormalise = true;
  ActKind act = ActKind::kSilu;
  Compute compute = Compute::kF32;
  BOLIDE_OP(MoeFfn) {
    v("experts", s.experts), v("top_k", s.top_k), v("renormalise", s.renormalise), v("act", s.act);
    v("compute", s.compute);
  }
};
// (x [T, E], rows i32 [R]) -> [R, E].
struct GatherRows {
  BOLIDE_OP(GatherRows) {}
};
// (x [T, N]) -> columns [begin, begin + count) as a view: never a kernel.
struct Slice {
  int64_t begin = 0, count = 0;
  BOLIDE_OP(Slice) { v("begin", s.begin), v("count", s.count); }
};
// (logits [R, V]) -> (next i32 [R], log-probability f32 [R]), by the batch's SamplingBatch.
struct Sample {
  BOLIDE_OP(Sample) {}
};

// Any op of src/ops: values of any type and rank, known only when it runs.
struct Generic {
  const OpDef* def = nullptr;
  int64_t version = 1;  // of the operator set
  std::shared_ptr<const Attributes> attributes;
  BOLIDE_OP(Generic) {}
};

#undef BOLIDE_OP

using Op = std::variant<Embed, RmsNorm, AddRmsNorm, LayerNorm, Linear, Rope, KvWrite, RopeKvWrite, QkvRope,
                        PagedAttention, GatedAct, Activate, Add, MoeFfn, GatherRows, Slice, Sample, Generic>;

std::string_view op_name(const Op& op);

}  // namespace bolide
