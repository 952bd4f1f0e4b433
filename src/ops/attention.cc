#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/attend.h"
#include "ops/dense.h"
#include "ops/ops.h"
#include "ops/prepared_rows.h"
#include "ops/shape.h"

namespace bolide {
namespace {

// Q, K or V: [B, heads, rows, D], or [B, rows, heads * D].
struct Side {
  int64_t B = 0, heads = 0, rows = 0, D = 0;
  bool packed = false;

  static Result<Side> read(const Tensor& x, int64_t heads, std::string_view name) {
    if (x.rank() == 4) return Side{x.dim(0), x.dim(1), x.dim(2), x.dim(3), false};
    if (x.rank() != 3)
      return error(Code::kInvalid, fmt::format("{} is {}, expected 3 or 4 dims", name, to_string(x.shape())));
    if (heads < 1 || x.dim(2) % heads != 0)
      return error(Code::kInvalid, fmt::format("{} is {}: no {} heads", name, to_string(x.shape()), heads));
    return Side{x.dim(0), heads, x.dim(1), x.dim(2) / heads, true};
  }
  template <class T>
  Heads<T> view(T* data) const {
    return packed ? Heads<T>::row_major(data, heads, rows, D) : Heads<T>::head_major(data, heads, rows, D);
  }
  Shape shape(int64_t last) const { return packed ? Shape{B, rows, heads * last} : Shape{B, heads, rows, last}; }
};

// attn_mask over [B, H, S, L]: bool or added numbers; keys past its last axis are masked.
struct Mask {
  const Tensor* given = nullptr;
  Tensor wide;
  int64_t strides[3] = {};  // of b, h, i
  int64_t keys = 0;

  template <class T>
  Result<> read(const RunContext& c, const Tensor* tensor, const Shape& scores) {
    if (tensor == nullptr) return {};
    const Shape& shape = tensor->shape();
    if (shape.rank < 1 || shape.rank > 4 || shape[-1] > scores[3])
      return error(Code::kInvalid,
                   fmt::format("attn_mask is {}, the scores are {}", to_string(shape), to_string(scores)));
    keys = shape[-1];
    int64_t stride = keys;
    for (int axis = 2; axis >= 0; --axis) {
      const int own = axis - 4 + shape.rank;
      if (own < 0) break;
      if (shape[own] != 1 && shape[own] != scores[axis])
        return error(Code::kInvalid,
                     fmt::format("attn_mask is {}, the scores are {}", to_string(shape), to_string(scores)));
      strides[axis] = shape[own] == 1 ? 0 : stride;
      stride *= shape[own];
    }
    if (tensor->dtype() != DType::kBool) {
      BOLIDE_TRY(wide, widened<T>(c, *tensor).context("attn_mask"));
    }
    given = tensor;
    return {};
  }
  template <class T>
  void write(int64_t b, int64_t h, int64_t i, int64_t L, T* row) const {
    if (given == nullptr) {
      std::fill_n(row, L, T{});
      return;
    }
    const int64_t from = b * strides[0] + h * strides[1] + i * strides[2];
    for (int64_t j = 0; j < keys; ++j) {
      const auto at = static_cast<size_t>(from + j);
      row[j] = wide ? wide.as<T>()[at] : given->as<uint8_t>()[at] != 0 ? T{} : masked<T>();
    }
    std::fill(row + keys, row + L, masked<T>());
  }
};

struct AttentionCase {
  Side q, k, v;
  bool causal = false;
  double scale = 1, softcap = 0;
  int64_t mode = 0, left = -1, right = -1;  // windows; -1: unbounded
  int64_t past = 0;
  std::vector<int64_t> valid;  // keys that are no padding, by batch; empty: all
};

Result<AttentionCase> read_attention(const RunContext& c) {
  const Attributes& attributes = c.attributes();
  AttentionCase a;
  BOLIDE_TRY(const Tensor* q, c.tensor(0));
  BOLIDE_TRY(const Tensor* k, c.tensor(1));
  BOLIDE_TRY(const Tensor* v, c.tensor(2));
  BOLIDE_TRY(const int64_t q_heads, attributes.integer("q_num_heads", 0));
  BOLIDE_TRY(const int64_t kv_heads, attributes.integer("kv_num_heads", 0));
  BOLIDE_TRY(a.q, Side::read(*q, q_heads, "Q"));
  BOLIDE_TRY(a.k, Side::read(*k, kv_heads, "K"));
  BOLIDE_TRY(a.v, Side::read(*v, kv_heads, "V"));
  if (a.k.B != a.q.B || a.v.B != a.q.B || a.k.heads != a.v.heads || a.k.rows != a.v.rows || a.k.D != a.q.D ||
      a.k.heads < 1 || a.q.heads % a.k.heads != 0)
    return error(Code::kInvalid, fmt::format("Q {}, K {} and V {} do not fit each other", to_string(q->shape()),
                                             to_string(k->shape()), to_string(v->shape())));
  BOLIDE_TRY(const int64_t causal, attributes.integer("is_causal", 0));
  BOLIDE_TRY(const float scale, attributes.number("scale", 0));
  BOLIDE_TRY(const float softcap, attributes.number("softcap", 0));
  BOLIDE_TRY(a.mode, attributes.integer("qk_matmul_output_mode", 0));
  BOLIDE_TRY(a.left, attributes.integer("left_window_size", -1));
  BOLIDE_TRY(a.right, attributes.integer("right_window_size", -1));
  if (a.mode < 0 || a.mode > 3) return error(Code::kInvalid, fmt::format("qk_matmul_output_mode is {}", a.mode));
  if (a.left < -1 || a.right < -1) return error(Code::kInvalid, "a window size is below -1");
  constexpr int64_t kFar = int64_t{1} << 48;
  a.left = std::min(a.left, kFar), a.right = std::min(a.right, kFar);
  a.causal = causal != 0, a.softcap = static_cast<double>(softcap);
  a.scale = attributes.has("scale") ? static_cast<double>(scale)
                                    : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(a.q.D, 1)));
  BOLIDE_TRY(const Tensor* past_key, c.tensor_if(4));
  BOLIDE_TRY(const Tensor* past_value, c.tensor_if(5));
  if ((past_key == nullptr) != (past_value == nullptr))
    return error(Code::kInvalid, "past_key and past_value come together");
  if (past_key != nullptr) {
    a.past = past_key->rank() == 4 ? past_key->dim(2) : 0;
    BOLIDE_TRY(expect_shape(*past_key, {a.q.B, a.k.heads, a.past, a.k.D}, "past_key"));
    BOLIDE_TRY(expect_shape(*past_value, {a.q.B, a.k.heads, a.past, a.v.D}, "past_value"));
  }
  BOLIDE_TRY(a.valid, c.integers(6, {}, a.q.B));
  if (c.has(6) && (static_cast<int64_t>(a.valid.size()) != a.q.B || past_key != nullptr))
    return error(Code::kInvalid, "nonpad_kv_seqlen has one value a sequence and comes without past_key");
  for (int64_t& valid : a.valid) valid = std::clamp<int64_t>(valid, 0, a.k.rows);
  BOLIDE_TRY(product_of(std::array{a.q.B, a.q.heads, a.q.rows, a.past + a.k.rows}));
  return a;
}

Result<> run_attention(RunContext& c) {
  BOLIDE_TRY(const AttentionCase a, read_attention(c));
  BOLIDE_TRY(const Tensor* q, c.tensor(0));
  BOLIDE_TRY(const Tensor* k, c.tensor(1));
  BOLIDE_TRY(const Tensor* v, c.tensor(2));
  BOLIDE_TRY(const Tensor* mask, c.tensor_if(3));
  const int64_t L = a.past + a.k.rows;
  const Shape scores_shape{a.q.B, a.q.heads, a.q.rows, L};
  return in_float(q->dtype(), "Q", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_q, widened<T>(c, *q));
    BOLIDE_TRY(const Tensor wide_k, widened<T>(c, *k));
    BOLIDE_TRY(const Tensor wide_v, widened<T>(c, *v));
    BOLIDE_TRY(const Tensor past_k, widened_if<T>(c, 4));
    BOLIDE_TRY(const Tensor past_v, widened_if<T>(c, 5));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, a.q.shape(a.v.D)));
    Attend<T> attention{a.q.B, a.q.heads, a.k.heads, a.q.rows, L, a.q.D, a.v.D};
    attention.q = a.q.view(wide_q.as<T>().data());
    attention.k = a.k.view(wide_k.as<T>().data());
    attention.v = a.v.view(wide_v.as<T>().data());
    Side out = a.q;
    out.D = a.v.D;
    attention.out = out.view(y.mutate<T>().data());
    attention.scale = a.scale, attention.softcap = a.softcap, attention.halves = q->dtype() == DType::kF16;
    Tensor all_k, all_v;
    if (past_k || c.outputs() > 1) {
      BOLIDE_TRY(all_k, append<T>(c, past_k, attention.k, a.q.B, a.k.heads, a.k.rows, a.k.D));
      BOLIDE_TRY(all_v, append<T>(c, past_v, attention.v, a.q.B, a.k.heads, a.k.rows, a.v.D));
      attention.k = Heads<const T>::head_major(all_k.as<T>().data(), a.k.heads, L, a.k.D);
      attention.v = Heads<const T>::head_major(all_v.as<T>().data(), a.k.heads, L, a.v.D);
    }
    Tensor scores;
    if (c.outputs() > 3) {
      BOLIDE_TRY(scores, make_wide<T>(c, scores_shape));
      attention.scores = scores.mutate<T>().data(), attention.scores_mode = a.mode;
    }
    Mask added;
    BOLIDE_TRY(added.read<T>(c, mask, scores_shape));
    attend<T>(c.workers(), attention, [&](int64_t b, int64_t h, int64_t i, T* row) {
      added.write(b, h, i, L, row);
      const bool padded = !a.valid.empty();
      const int64_t valid = padded ? a.valid[static_cast<size_t>(b)] : L;
      const int64_t at = i + (padded ? valid - a.q.rows : a.past);  // of the query among the keys
      int64_t first = 0, end = valid;
      if (a.causal) end = std::min(end, at + 1);
      if (a.left >= 0) first = std::max(first, at - a.left);
      if (a.right >= 0) end = std::min(end, at + a.right + 1);
      first = std::clamp<int64_t>(first, 0, L), end = std::clamp<int64_t>(end, first, L);
      std::fill(row, row + first, masked<T>());
      std::fill(row + end, row + L, masked<T>());
    });
    if (c.outputs() > 1) BOLIDE_TRY(emit(c, 1, k->dtype(), std::move(all_k)));
    if (c.outputs() > 2) BOLIDE_TRY(emit(c, 2, v->dtype(), std::move(all_v)));
    if (c.outputs() > 3) BOLIDE_TRY(emit(c, 3, q->dtype(), std::move(scores)));
    return emit(c, 0, q->dtype(), std::move(y));
  });
}

// Attention whose scores and probabilities may go through bodies of the node.
template <class T>
Result<> run_modified(RunContext& c, std::string_view attribute, Tensor& values) {
  auto results = c.run_body(attribute, {AnyValue(values)});
  if (!results && results.error().code == Code::kNotFound) return {};  // the node has no such body
  if (!results) return std::move(results).error().context(attribute);
  const Tensor* made = results->size() == 1 ? (*results)[0].tensor() : nullptr;
  if (made == nullptr || made->dtype() != values.dtype() || made->shape() != values.shape())
    return error(Code::kInvalid, fmt::format("{} gives something else than a tensor of the type and shape it got: {}{}",
                                             attribute, to_string(values.dtype()), to_string(values.shape())));
  values = *made;
  return {};
}

Result<> run_flex_attention(RunContext& c) {
  BOLIDE_TRY(const AttentionCase a, read_attention(c));
  BOLIDE_TRY(const Tensor* q, c.tensor(0));
  BOLIDE_TRY(const Tensor* k, c.tensor(1));
  BOLIDE_TRY(const Tensor* v, c.tensor(2));
  if (a.q.packed || a.k.packed || a.v.packed) return error(Code::kInvalid, "Q, K and V need 4 dims");
  const auto& [B, H, S, D, packed] = a.q;
  const int64_t L = a.k.rows, Dv = a.v.D, group = H / a.k.heads;
  return in_float(q->dtype(), "Q", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_q, widened<T>(c, *q));
    BOLIDE_TRY(const Tensor wide_k, widened<T>(c, *k));
    BOLIDE_TRY(const Tensor wide_v, widened<T>(c, *v));
    BOLIDE_TRY(Tensor scores, make_wide<T>(c, {B, H, S, L}));
    const int64_t keys = D * L, values = Dv * L;
    multiply<T>(c.workers(), S, L, D, B * H, [&](int64_t i) {
      return Product<T>{{wide_q.as<T>().data() + i * S * D, D, 1},
                        {wide_k.as<T>().data() + i / group * keys, 1, D},
                        scores.mutate<T>().data() + i * S * L,
                        L};
    });
    for (T& score : scores.mutate<T>()) score *= static_cast<T>(a.scale);
    BOLIDE_TRY(run_modified<T>(c, "score_mod", scores));
    BOLIDE_TRY(Tensor weights, make_wide<T>(c, scores.shape()));
    for (int64_t r = 0; r < B * H * S && L > 0; ++r) {
      const T* from = scores.as<T>().data() + r * L;
      T* to = weights.mutate<T>().data() + r * L;
      const T most = *std::max_element(from, from + L);
      T sum{};
      for (int64_t j = 0; j < L; ++j) sum += to[j] = most == masked<T>() ? T{} : std::exp(from[j] - most);
      for (int64_t j = 0; j < L && sum != T{}; ++j) to[j] /= sum;
    }
    BOLIDE_TRY(run_modified<T>(c, "prob_mod", weights));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, {B, H, S, Dv}));
    multiply<T>(c.workers(), S, Dv, L, B * H, [&](int64_t i) {
      return Product<T>{{weights.as<T>().data() + i * S * L, L, 1},
                        {wide_v.as<T>().data() + i / group * values, Dv, 1},
                        y.mutate<T>().data() + i * S * Dv,
                        Dv};
    });
    return emit(c, 0, q->dtype(), std::move(y));
  });
}

// X [B, heads, S, D] or [B, S, heads * D]; caches [positions, dim / 2] with position_ids [B, S], else [B, S, dim / 2].
Result<> run_rotary_embedding(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* cosines, c.tensor(1));
  BOLIDE_TRY(const Tensor* sines, c.tensor(2));
  BOLIDE_TRY(const Tensor* positions, c.tensor_if(3));
  BOLIDE_TRY(const int64_t heads, c.attributes().integer("num_heads", 0));
  BOLIDE_TRY(const int64_t interleaved, c.attributes().integer("interleaved", 0));
  BOLIDE_TRY(int64_t dim, c.attributes().integer("rotary_embedding_dim", 0));
  BOLIDE_TRY(const Side side, Side::read(*x, heads, "X"));
  if (dim == 0) dim = side.D;
  if (dim < 0 || dim > side.D || dim % 2 != 0)
    return error(Code::kInvalid, fmt::format("rotary_embedding_dim is {} for heads of {}", dim, side.D));
  const int64_t rows = positions != nullptr && cosines->rank() == 2 ? cosines->dim(0) : 0;
  const Shape cache = positions != nullptr ? Shape{rows, dim / 2} : Shape{side.B, side.rows, dim / 2};
  BOLIDE_TRY(expect_shape(*cosines, cache, "cos_cache"));
  BOLIDE_TRY(expect_shape(*sines, cache, "sin_cache"));
  if (positions != nullptr) BOLIDE_TRY(expect_shape(*positions, {side.B, side.rows}, "position_ids"));
  BOLIDE_TRY(const auto at, c.integers(3, {}, int64_t{1} << 40));
  for (const int64_t position : at)
    if (position < 0 || position >= rows)
      return error(Code::kInvalid, fmt::format("position_ids has {}, the caches have {} rows", position, rows));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor wide_cosines, widened<T>(c, *cosines));
    BOLIDE_TRY(const Tensor wide_sines, widened<T>(c, *sines));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    const Rotation<T> rotation{side.B,
                               side.heads,
                               side.rows,
                               side.D,
                               dim,
                               interleaved != 0,
                               wide_cosines.as<T>().data(),
                               wide_sines.as<T>().data()};
    rotate<T>(rotation, side.view(wide.as<T>().data()), side.view(y.mutate<T>().data()), [&](int64_t b, int64_t s) {
      const int64_t i = b * side.rows + s;
      return at.empty() ? i : at[static_cast<size_t>(i)];
    });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "Attention", .since = 23, .run = run_attention, .prepare = prepare_attention},
    {.domain = "", .name = "RotaryEmbedding", .since = 23, .run = run_rotary_embedding, .prepare = prepare_rotary},
    {"", "TensorScatter", 24, run_tensor_scatter},
    {"", "LinearAttention", 27, run_linear_attention},
    {"", "CausalConvWithState", 27, run_causal_conv_with_state},
    {"ai.onnx.preview", "FlexAttention", 1, run_flex_attention},
};

}  // namespace

std::span<const OpDef> attention_ops() { return kOps; }

}  // namespace bolide
