// Attention with a state of fixed size, and what comes with it: causal convolutions and updates of caches.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/attention.h"
#include "ops/dense.h"
#include "ops/shape.h"

namespace bolide {

// query [B, T, H * dk], key [B, T, G * dk], value [B, T, G * dv], state [B, G, dk, dv], decay [B, T, G or G * dk],
// beta [B, T, G or 1].
Result<> run_linear_attention(RunContext& c) {
  BOLIDE_TRY(const Tensor* query, c.tensor(0));
  BOLIDE_TRY(const Tensor* key, c.tensor(1));
  BOLIDE_TRY(const Tensor* value, c.tensor(2));
  BOLIDE_TRY(const Tensor* state, c.tensor_if(3));
  BOLIDE_TRY(const Tensor* decay, c.tensor_if(4));
  BOLIDE_TRY(const Tensor* beta, c.tensor_if(5));
  BOLIDE_TRY(const int64_t H, c.attributes().integer("q_num_heads", 0));
  BOLIDE_TRY(const int64_t G, c.attributes().integer("kv_num_heads", 0));
  BOLIDE_TRY(const float given_scale, c.attributes().number("scale", 0));
  BOLIDE_TRY(const std::string rule, c.attributes().text("update_rule", "gated_delta"));
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") return error(Code::kInvalid, fmt::format("update_rule is '{:.40}'", rule));
  if (gated != (decay != nullptr) || delta != (beta != nullptr))
    return error(Code::kInvalid, fmt::format("update_rule '{}' {} a decay and {} a beta", rule,
                                             gated ? "needs" : "has no", delta ? "needs" : "has no"));
  if (H < 1 || G < 1 || H % G != 0)
    return error(Code::kInvalid, fmt::format("q_num_heads is {}, kv_num_heads {}", H, G));
  if (query->rank() != 3 || key->rank() != 3 || value->rank() != 3 || query->dim(2) % H != 0 || value->dim(2) % G != 0)
    return error(Code::kInvalid, fmt::format("query is {}, key {}, value {}", to_string(query->shape()),
                                             to_string(key->shape()), to_string(value->shape())));
  const int64_t B = query->dim(0), steps = query->dim(1), dk = query->dim(2) / H, dv = value->dim(2) / G;
  BOLIDE_TRY(product_of(std::array{G, dk}));
  BOLIDE_TRY(expect_shape(*key, {B, steps, G * dk}, "key"));
  BOLIDE_TRY(expect_shape(*value, {B, steps, G * dv}, "value"));
  const Shape state_shape{B, G, dk, dv};
  BOLIDE_TRY(product_of(state_shape.span()));
  BOLIDE_TRY(product_of(std::array{B, steps, H, dv}));
  if (state != nullptr) BOLIDE_TRY(expect_shape(*state, state_shape, "past_state"));
  const bool by_head = decay != nullptr && decay->rank() == 3 && decay->dim(2) == G;
  if (decay != nullptr) BOLIDE_TRY(expect_shape(*decay, {B, steps, by_head ? G : G * dk}, "decay"));
  const bool shared = beta != nullptr && beta->rank() == 3 && beta->dim(2) == 1;
  if (beta != nullptr) BOLIDE_TRY(expect_shape(*beta, {B, steps, shared ? 1 : G}, "beta"));
  const double scale = given_scale == 0 ? 1 / std::sqrt(static_cast<double>(std::max<int64_t>(dk, 1)))
                                        : static_cast<double>(given_scale);
  return in_float(query->dtype(), "query", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor q, widened<T>(c, *query));
    BOLIDE_TRY(const Tensor k, widened<T>(c, *key));
    BOLIDE_TRY(const Tensor v, widened<T>(c, *value));
    BOLIDE_TRY(const Tensor past, widened_if<T>(c, 3));
    BOLIDE_TRY(const Tensor decays, widened_if<T>(c, 4));
    BOLIDE_TRY(const Tensor betas, widened_if<T>(c, 5));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, {B, steps, H * dv}, true));
    BOLIDE_TRY(Tensor present, make_wide<T>(c, state_shape, true));
    if (past && past.bytes() > 0) std::memcpy(present.mutable_data(), past.data(), past.bytes());
    parallel(c.workers(), y.elements() == 0 ? 0 : B * G, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> write(static_cast<size_t>(dv));
      for (int64_t bg = begin; bg < end; ++bg) {
        const int64_t b = bg / G, g = bg % G;
        T* const s = present.mutate<T>().data() + bg * dk * dv;
        for (int64_t t = 0; t < steps; ++t) {
          const int64_t row = b * steps + t;
          const T* kt = k.as<T>().data() + (row * G + g) * dk;
          const T* vt = v.as<T>().data() + (row * G + g) * dv;
          if (gated)
            for (int64_t i = 0; i < dk; ++i) {
              const T factor =
                  std::exp(decays.as<T>()[static_cast<size_t>((row * G + g) * (by_head ? 1 : dk) + (by_head ? 0 : i))]);
              for (int64_t m = 0; m < dv; ++m) s[i * dv + m] *= factor;
            }
          std::copy_n(vt, dv, write.data());
          if (delta) {  // what the state already has for this key is taken off
            for (int64_t i = 0; i < dk; ++i)
              for (int64_t m = 0; m < dv; ++m) write[static_cast<size_t>(m)] -= s[i * dv + m] * kt[i];
            const T rate = betas.as<T>()[static_cast<size_t>(shared ? row : row * G + g)];
            for (T& w : write) w *= rate;
          }
          for (int64_t i = 0; i < dk; ++i)
            for (int64_t m = 0; m < dv; ++m) s[i * dv + m] += kt[i] * write[static_cast<size_t>(m)];
          for (int64_t h = g * (H / G); h < (g + 1) * (H / G); ++h) {
            const T* qt = q.as<T>().data() + (row * H + h) * dk;
            T* out = y.mutate<T>().data() + (row * H + h) * dv;
            for (int64_t i = 0; i < dk; ++i)
              for (int64_t m = 0; m < dv; ++m) out[m] += qt[i] * s[i * dv + m];
            for (int64_t m = 0; m < dv; ++m) out[m] *= static_cast<T>(scale);
          }
        }
      }
    });
    BOLIDE_TRY(emit(c, 1, state != nullptr ? state->dtype() : query->dtype(), std::move(present)));
    return emit(c, 0, query->dtype(), std::move(y));
  });
}

// input [B, C, L], weight [C, 1, k], bias [C], past_state [B, C, k - 1]
Result<> run_causal_conv_with_state(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* weight, c.tensor(1));
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* past, c.tensor_if(3));
  BOLIDE_TRY(const std::string activation, c.attributes().text("activation", "none"));
  const bool silu = activation == "silu" || activation == "swish";
  if (!silu && activation != "none") return error(Code::kInvalid, fmt::format("activation is '{:.40}'", activation));
  if (x->rank() != 3 || weight->rank() != 3 || weight->dim(2) < 1)
    return error(Code::kInvalid, fmt::format("input is {}, weight {}: expected [B, C, L] and [C, 1, k]",
                                             to_string(x->shape()), to_string(weight->shape())));
  const int64_t B = x->dim(0), C = x->dim(1), L = x->dim(2), K = weight->dim(2);
  BOLIDE_TRY(expect_shape(*weight, {C, 1, K}, "weight"));
  if (bias != nullptr) BOLIDE_TRY(expect_shape(*bias, {C}, "bias"));
  if (past != nullptr) BOLIDE_TRY(expect_shape(*past, {B, C, K - 1}, "past_state"));
  BOLIDE_TRY(product_of(std::array{B, C, L + K}));
  return in_float(x->dtype(), "input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor in, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor weights, widened<T>(c, *weight));
    BOLIDE_TRY(const Tensor biases, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor before, widened_if<T>(c, 3));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    BOLIDE_TRY(Tensor present, make_wide<T>(c, {B, C, K - 1}));
    parallel(c.workers(), y.elements() + present.elements() == 0 ? 0 : B * C, 16, [&](int64_t begin, int64_t end) {
      std::vector<T> line(static_cast<size_t>(L + K - 1));
      for (int64_t row = begin; row < end; ++row) {
        std::fill_n(line.data(), K - 1, T{});
        if (before) std::copy_n(before.as<T>().data() + row * (K - 1), K - 1, line.data());
        std::copy_n(in.as<T>().data() + row * L, L, line.data() + K - 1);
        const T* w = weights.as<T>().data() + row % C * K;
        T* out = y.mutate<T>().data() + row * L;
        std::fill_n(out, L, biases ? biases.as<T>()[static_cast<size_t>(row % C)] : T{});
        for (int64_t k = 0; k < K; ++k)
          for (int64_t i = 0; i < L; ++i) out[i] += w[k] * line[static_cast<size_t>(i + k)];
        if (silu)
          for (int64_t i = 0; i < L; ++i) out[i] /= 1 + std::exp(-out[i]);
        std::copy_n(line.data() + L, K - 1, present.mutate<T>().data() + row * (K - 1));
      }
    });
    BOLIDE_TRY(emit(c, 1, x->dtype(), std::move(present)));
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// past_cache [B, ..., most, ...] with update [B, ..., count, ...] written from write_indices[b] on, along axis.
Result<> run_tensor_scatter(RunContext& c) {
  BOLIDE_TRY(const Tensor* cache, c.tensor(0));
  BOLIDE_TRY(const Tensor* update, c.tensor(1));
  BOLIDE_TRY(const std::string mode, c.attributes().text("mode", "linear"));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", -2));
  BOLIDE_TRY(const int axis, axis_of(given, cache->rank()));
  if (axis == 0) return error(Code::kInvalid, "axis is the batch");
  if (mode != "linear" && mode != "circular") return error(Code::kInvalid, fmt::format("mode is '{:.40}'", mode));
  if (update->dtype() != cache->dtype() || update->rank() != cache->rank())
    return error(Code::kInvalid,
                 fmt::format("past_cache is {}{}, update {}{}", to_string(cache->dtype()), to_string(cache->shape()),
                             to_string(update->dtype()), to_string(update->shape())));
  const int64_t most = cache->dim(axis), count = update->dim(axis), B = cache->dim(0);
  Shape expected = cache->shape();
  expected[axis] = std::min(count, most);
  BOLIDE_TRY(expect_shape(*update, expected, "update"));
  BOLIDE_TRY(const auto starts, c.integers(2, std::vector<int64_t>(static_cast<size_t>(B)), B));
  if (static_cast<int64_t>(starts.size()) != B)
    return error(Code::kInvalid, fmt::format("write_indices has {} values for {} sequences", starts.size(), B));
  for (const int64_t start : starts)
    if (start < 0 || start > (mode == "linear" ? most - count : int64_t{1} << 48))
      return error(Code::kInvalid,
                   fmt::format("write_indices has {} for {} rows of a cache of {}", start, count, most));
  BOLIDE_TRY(Tensor * y, c.make(0, cache->dtype(), cache->shape()));
  return dispatch_moves(cache->dtype(), [&]<class T>() -> Result<> {
    const auto out = y->mutate<T>();
    std::copy(cache->as<T>().begin(), cache->as<T>().end(), out.begin());
    if (update->elements() == 0) return {};
    int64_t middle = 1;
    for (int i = 1; i < axis; ++i) middle *= cache->dim(i);
    const int64_t inner = strides_of(cache->shape())[static_cast<size_t>(axis)];
    for (int64_t row = 0; row < B * middle; ++row)
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = (starts[static_cast<size_t>(row / middle)] + i) % most;
        std::copy_n(update->as<T>().data() + (row * count + i) * inner, inner, out.data() + (row * most + at) * inner);
      }
    return {};
  });
}

}  // namespace bolide
