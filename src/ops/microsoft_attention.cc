// com.microsoft: Attention, MultiHeadAttention, RotaryEmbedding.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/attend.h"
#include "ops/dense.h"
#include "ops/microsoft.h"
#include "ops/microsoft_mask.h"

namespace bolide {
namespace {

Result<double> read_scale(const RunContext& c, int64_t D) {
  BOLIDE_TRY(const float scale, c.attributes().number("scale", 0));
  return scale != 0 ? static_cast<double>(scale) : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(D, 1)));
}

// [B, rows, heads * D] + bias [heads * D] as [B, heads, rows, D].
template <class T>
Result<Tensor> split_heads(const RunContext& c, const Tensor& x, int64_t heads, const T* bias) {
  const int64_t B = x.dim(0), rows = x.dim(1), hidden = x.dim(2), D = hidden / heads;
  BOLIDE_TRY(Tensor to, make_wide<T>(c, {B, heads, rows, D}));
  if (to.elements() == 0) return to;
  T* out = to.mutate<T>().data();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t d = 0; d < D; ++d)
          *out++ = x.as<T>()[static_cast<size_t>((b * rows + i) * hidden + h * D + d)] +
                   (bias != nullptr ? bias[h * D + d] : T{});
  return to;
}

// Part `part` of x [B, rows, heads, parts, D] as [B, heads, rows, D].
template <class T>
Result<Tensor> unpack_heads(const RunContext& c, const Tensor& x, int64_t part) {
  const int64_t B = x.dim(0), rows = x.dim(1), heads = x.dim(2), parts = x.dim(3), D = x.dim(4);
  BOLIDE_TRY(Tensor to, make_wide<T>(c, {B, heads, rows, D}));
  if (to.elements() == 0) return to;
  T* out = to.mutate<T>().data();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < rows; ++i)
        out = std::copy_n(x.as<T>().data() + (((b * rows + i) * heads + h) * parts + part) * D, D, out);
  return to;
}

template <class T>
Heads<const T> view_of(const Tensor& t) {  // [B, heads, rows, D]
  return Heads<const T>::head_major(t.as<T>().data(), t.dim(1), t.dim(2), t.dim(3));
}

// q, k and v [B, heads, rows, D] > y [B, S, heads * Dv], with the masks of the node.
template <class T>
Result<Tensor> attend_masked(RunContext& c, const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                             int64_t past, Tensor* scores) {
  const int64_t B = q.dim(0), H = q.dim(1), S = q.dim(2), L = k.dim(2), Dv = v.dim(3);
  BOLIDE_TRY(Tensor y, make_wide<T>(c, {B, S, H * Dv}));
  BOLIDE_TRY(product_of(std::array{B, H, S, L}));
  Attend<T> attention{B, H, H, S, L, q.dim(3), Dv};
  attention.q = view_of<T>(q), attention.k = view_of<T>(k), attention.v = view_of<T>(v);
  attention.out = Heads<T>::row_major(y.mutate<T>().data(), H, S, Dv);
  BOLIDE_TRY(attention.scale, read_scale(c, q.dim(3)));
  BOLIDE_TRY(const int64_t causal, c.attributes().integer("unidirectional", 0));
  if (scores != nullptr) {
    BOLIDE_TRY(*scores, make_wide<T>(c, {B, H, S, L}));
    attention.scores = scores->mutate<T>().data(), attention.scores_mode = 0;
  }
  attend<T>(c.workers(), attention, [&](int64_t b, int64_t h, int64_t i, T* row) {
    mask.write<T>(b, h, i, L, row);
    if (causal != 0) std::fill(row + std::min(L, past + i + 1), row + L, masked<T>());
  });
  return y;
}

}  // namespace

// input [B, S, I], weights [I, 3 * hidden], bias [3 * hidden], mask_index, past [2, B, H, P, D], attention_bias
Result<> run_microsoft_attention(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* past, c.tensor_if(4));
  BOLIDE_TRY(const int64_t H, c.attributes().integer("num_heads", 0));
  BOLIDE_TRY(const int64_t rotary, c.attributes().integer("do_rotary", 0));
  BOLIDE_TRY(const int64_t shared, c.attributes().integer("past_present_share_buffer", 0));
  if (rotary != 0 || shared != 0) return error(Code::kUnsupported, "do_rotary and past_present_share_buffer");
  if (x->rank() != 3 || w->rank() != 2 || w->dim(0) != x->dim(2))
    return error(Code::kInvalid, fmt::format("input is {}, weights {}", to_string(x->shape()), to_string(w->shape())));
  const int64_t third = w->dim(1) / 3;
  BOLIDE_TRY(const auto sizes, c.attributes().integers("qkv_hidden_sizes", {third, third, third}));
  if (sizes.size() != 3 || H < 1 || sizes[0] < 1 || sizes[2] < 1 || sizes[0] > w->dim(1) || sizes[2] > w->dim(1) ||
      sizes[0] != sizes[1] || 2 * sizes[0] + sizes[2] != w->dim(1) || sizes[0] % H != 0 || sizes[2] % H != 0)
    return error(Code::kInvalid,
                 fmt::format("weights are {}: no {} heads of qkv_hidden_sizes", to_string(w->shape()), H));
  if (bias != nullptr) BOLIDE_TRY(expect_shape(*bias, {w->dim(1)}, "bias"));
  const int64_t B = x->dim(0), S = x->dim(1), I = x->dim(2), N = w->dim(1), D = sizes[0] / H, Dv = sizes[2] / H;
  const int64_t P = past != nullptr && past->rank() == 5 ? past->dim(3) : 0;
  if (past != nullptr) BOLIDE_TRY(expect_shape(*past, {2, B, H, P, D}, "past"));
  if ((past != nullptr || c.outputs() > 1) && D != Dv)
    return error(Code::kInvalid, "past and present need values of the keys' size");
  BOLIDE_TRY(const KeyMask mask, KeyMask::read(c, 3, 5, {B, H, S, P + S}));
  return in_float(x->dtype(), "input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor weights, widened<T>(c, *w));
    BOLIDE_TRY(const Tensor biases, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor pasts, widened_if<T>(c, 4));
    Tensor parts[3];
    int64_t column = 0;
    for (size_t i = 0; i < 3; ++i) {
      BOLIDE_TRY(Tensor projected, make_wide<T>(c, {B, S, sizes[i]}));
      multiply<T>(c.workers(), B * S, sizes[i], I, 1, [&](int64_t) {
        return Product<T>{{wide.as<T>().data(), I, 1},
                          {weights.as<T>().data() + column, N, 1},
                          projected.mutate<T>().data(),
                          sizes[i]};
      });
      BOLIDE_TRY(parts[i], split_heads<T>(c, projected, H, biases ? biases.as<T>().data() + column : nullptr));
      column += sizes[i];
    }
    if (past != nullptr || c.outputs() > 1) {
      BOLIDE_TRY(Tensor present, make_wide<T>(c, {2, B, H, P + S, D}));
      for (int64_t i = 0; i < 2; ++i) {
        Tensor before;
        if (pasts) {
          BOLIDE_TRY(before, make_wide<T>(c, {B, H, P, D}));
          std::copy_n(pasts.as<T>().data() + i * B * H * P * D, B * H * P * D, before.mutate<T>().data());
        }
        Tensor& part = parts[i + 1];
        BOLIDE_TRY(part, append<T>(c, before, view_of<T>(part), B, H, S, D));
        std::copy_n(part.as<T>().data(), part.elements(), present.mutate<T>().data() + i * part.elements());
      }
      if (c.outputs() > 1) BOLIDE_TRY(emit(c, 1, x->dtype(), std::move(present)));
    }
    BOLIDE_TRY(Tensor y, attend_masked<T>(c, parts[0], parts[1], parts[2], mask, P, nullptr));
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// query [B, S, H * D] and key, value [B, L, H * D]; or query [B, S, H, 3, D]; or key [B, L, H, 2, D]; or key and value
// [B, H, L, D]. bias, key_padding_mask, attention_bias, past_key, past_value.
Result<> run_multi_head_attention(RunContext& c) {
  BOLIDE_TRY(const Tensor* query, c.tensor(0));
  BOLIDE_TRY(const Tensor* key, c.tensor_if(1));
  BOLIDE_TRY(const Tensor* value, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(3));
  BOLIDE_TRY(const Tensor* past_key, c.tensor_if(6));
  BOLIDE_TRY(const Tensor* past_value, c.tensor_if(7));
  BOLIDE_TRY(const int64_t H, c.attributes().integer("num_heads", 0));
  if (c.has(8) || c.has(9)) return error(Code::kUnsupported, "past_sequence_length and cache_indirection");
  const auto wrong = [&] {
    const auto show = [](const Tensor* t) { return t == nullptr ? std::string("absent") : to_string(t->shape()); };
    return error(Code::kInvalid, fmt::format("query {}, key {} and value {} do not fit {} heads", show(query),
                                             show(key), show(value), H));
  };
  const bool packed = query->rank() == 5, packed_kv = key != nullptr && key->rank() == 5;
  const bool split = key != nullptr && key->rank() == 4;
  if (H < 1 || (packed ? key != nullptr || query->dim(2) != H || query->dim(3) != 3
                       : query->rank() != 3 || query->dim(2) % H != 0 || key == nullptr))
    return wrong();
  const int64_t B = query->dim(0), S = query->dim(1), D = packed ? query->dim(4) : query->dim(2) / H;
  int64_t Dv = D, L = S;
  if (packed_kv) {
    L = key->dim(1);
    if (value != nullptr || key->shape() != Shape{B, L, H, 2, D}) return wrong();
  } else if (!packed) {
    if (value == nullptr || value->rank() != key->rank() || (!split && key->rank() != 3)) return wrong();
    L = key->dim(split ? 2 : 1);
    Dv = split ? value->dim(3) : value->dim(2) / H;
    if (key->shape() != (split ? Shape{B, H, L, D} : Shape{B, L, H * D}) ||
        value->shape() != (split ? Shape{B, H, L, Dv} : Shape{B, L, H * Dv}))
      return wrong();
  }
  const int64_t hidden = H * D;
  if (bias != nullptr) BOLIDE_TRY(expect_shape(*bias, {2 * hidden + H * Dv}, "bias"));
  if (bias != nullptr && (packed || packed_kv)) return error(Code::kUnsupported, "bias of packed inputs");
  if ((past_key == nullptr) != (past_value == nullptr)) return error(Code::kInvalid, "past_key without past_value");
  const int64_t P = past_key != nullptr && past_key->rank() == 4 ? past_key->dim(2) : 0;
  if (past_key != nullptr) {
    BOLIDE_TRY(expect_shape(*past_key, {B, H, P, D}, "past_key"));
    BOLIDE_TRY(expect_shape(*past_value, {B, H, P, Dv}, "past_value"));
  }
  BOLIDE_TRY(const KeyMask mask, KeyMask::read(c, 4, 5, {B, H, S, P + L}));
  return in_float(query->dtype(), "query", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_q, widened<T>(c, *query));
    BOLIDE_TRY(const Tensor wide_k, widened_if<T>(c, 1));
    BOLIDE_TRY(const Tensor wide_v, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor biases, widened_if<T>(c, 3));
    BOLIDE_TRY(const Tensor before_k, widened_if<T>(c, 6));
    BOLIDE_TRY(const Tensor before_v, widened_if<T>(c, 7));
    const T* added = biases ? biases.as<T>().data() : nullptr;
    BOLIDE_TRY(const Tensor q, packed ? unpack_heads<T>(c, wide_q, 0) : split_heads<T>(c, wide_q, H, added));
    const auto side = [&](int64_t i, const Tensor& own) -> Result<Tensor> {
      if (packed) return unpack_heads<T>(c, wide_q, i + 1);
      if (packed_kv) return unpack_heads<T>(c, wide_k, i);
      if (split) return own;
      return split_heads<T>(c, own, H, added == nullptr ? nullptr : added + (i + 1) * hidden);
    };
    BOLIDE_TRY(Tensor k, side(0, wide_k));
    BOLIDE_TRY(Tensor v, side(1, wide_v));
    if (before_k) {
      BOLIDE_TRY(k, append<T>(c, before_k, view_of<T>(k), B, H, L, D));
      BOLIDE_TRY(v, append<T>(c, before_v, view_of<T>(v), B, H, L, Dv));
    }
    Tensor scores;
    BOLIDE_TRY(Tensor y, attend_masked<T>(c, q, k, v, mask, P, c.outputs() > 3 ? &scores : nullptr));
    if (c.outputs() > 1) BOLIDE_TRY(emit(c, 1, query->dtype(), std::move(k)));
    if (c.outputs() > 2) BOLIDE_TRY(emit(c, 2, query->dtype(), std::move(v)));
    if (c.outputs() > 3) BOLIDE_TRY(emit(c, 3, query->dtype(), std::move(scores)));
    return emit(c, 0, query->dtype(), std::move(y));
  });
}

// input [B, S, H * D] or [B, H, S, D], position_ids [1] (of the first) or [B, S], caches [positions, dim / 2]
Result<> run_microsoft_rotary_embedding(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* given, c.tensor(1));
  BOLIDE_TRY(const auto positions, c.integers(1, {}, int64_t{1} << 40));
  BOLIDE_TRY(const Tensor* cosines, c.tensor(2));
  BOLIDE_TRY(const Tensor* sines, c.tensor(3));
  BOLIDE_TRY(const int64_t interleaved, c.attributes().integer("interleaved", 0));
  BOLIDE_TRY(const int64_t heads, c.attributes().integer("num_heads", 0));
  BOLIDE_TRY(const int64_t partial, c.attributes().integer("rotary_embedding_dim", 0));
  if (cosines->rank() != 2 || (x->rank() != 3 && x->rank() != 4))
    return error(Code::kInvalid,
                 fmt::format("input is {}, cos_cache {}", to_string(x->shape()), to_string(cosines->shape())));
  BOLIDE_TRY(expect_shape(*sines, cosines->shape(), "sin_cache"));
  const int64_t rows = cosines->dim(0), dim = 2 * cosines->dim(1), B = x->dim(0);
  const int64_t S = x->dim(x->rank() == 4 ? 2 : 1);
  int64_t D = dim, H = 0;
  if (x->rank() == 4) {
    H = x->dim(1), D = x->dim(3);
  } else {
    if (partial > 0 || heads > 0) D = heads > 0 && x->dim(2) % heads == 0 ? x->dim(2) / heads : 0;
    if (D < 1 || x->dim(2) % D != 0)
      return error(Code::kInvalid, fmt::format("input is {}: no heads of {}", to_string(x->shape()), D));
    H = x->dim(2) / D;
  }
  if (dim > D || (partial > 0 && partial != dim))
    return error(Code::kInvalid, fmt::format("rotary_embedding_dim is {}, cos_cache {} and the heads {}", partial,
                                             to_string(cosines->shape()), D));
  const bool offset = given->elements() == 1;
  if (!offset) BOLIDE_TRY(expect_shape(*given, {B, S}, "position_ids"));
  for (const int64_t position : positions)
    if (position < 0 || position >= rows || (offset && S > rows - position))
      return error(Code::kInvalid, fmt::format("position_ids has {}, the caches have {} rows", position, rows));
  return in_float(x->dtype(), "input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor wide_cosines, widened<T>(c, *cosines));
    BOLIDE_TRY(const Tensor wide_sines, widened<T>(c, *sines));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    const Rotation<T> rotation{
        B, H, S, D, dim, interleaved != 0, wide_cosines.as<T>().data(), wide_sines.as<T>().data()};
    const auto view = [&]<class P>(P* data) {
      return x->rank() == 4 ? Heads<P>::head_major(data, H, S, D) : Heads<P>::row_major(data, H, S, D);
    };
    rotate<T>(rotation, view(wide.as<T>().data()), view(y.mutate<T>().data()), [&](int64_t b, int64_t s) {
      return offset ? positions[0] + s : positions[static_cast<size_t>(b * S + s)];
    });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

}  // namespace bolide
