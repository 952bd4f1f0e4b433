// Two passes over a row, the second from L1.
#pragma once

#include "kernels/norm/norm_isa.h"
#include "kernels/simd/row.h"

namespace bolide {
namespace {

BOLIDE_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

// Sum of f(i, vector i) over a row in four partial sums; f is given the vectors' elements beyond `count` as zeros.
template <class F>
BOLIDE_INLINE float row_sum(int64_t count, F&& f) {
  Vec part[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) part[u] = f(i + u * kLanes, static_cast<int64_t>(kLanes), part[u]);
  for (int u = 0; i + kLanes <= count; i += kLanes, ++u) part[u] = f(i, static_cast<int64_t>(kLanes), part[u]);
  if (i < count) part[3] = f(i, count - i, part[3]);
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

void scale_row(const float* x, const float* weight, float squares, float eps, int64_t count, float* out) {
  const Vec scale = set(1.f / square_root(squares / static_cast<float>(count) + eps));
  for_row(count, [&](int64_t i, int64_t n) {
    store_some(out + i, load_some(x + i, n) * scale * load_some(weight + i, n), n);
  });
}

void rms_row(const float* x, const float* weight, float eps, int64_t count, float* out) {
  const float squares = row_sum(count, [&](int64_t i, int64_t n, Vec part) {
    const Vec v = load_some(x + i, n);
    return fma(v, v, part);
  });
  scale_row(x, weight, squares, eps, count, out);
}

void add_rms_row(const float* x, const float* residual, const float* weight, float eps, int64_t count, float* total,
                 float* out) {
  const float squares = row_sum(count, [&](int64_t i, int64_t n, Vec part) {
    const Vec v = load_some(x + i, n) + load_some(residual + i, n);
    store_some(total + i, v, n);
    return fma(v, v, part);
  });
  scale_row(total, weight, squares, eps, count, out);
}

void layer_row(const float* x, const float* weight, const float* bias, float eps, int64_t count, float* out) {
  const float mean = row_sum(count, [&](int64_t i, int64_t n, Vec part) { return part + load_some(x + i, n); }) /
                     static_cast<float>(count);
  const Vec center = set(mean);
  const float squares = row_sum(count, [&](int64_t i, int64_t n, Vec part) {
    Vec v = load_some(x + i, n) - center;
    if (n != kLanes) v = within(v, zero(), 0, n);
    return fma(v, v, part);
  });
  const Vec scale = set(1.f / square_root(squares / static_cast<float>(count) + eps));
  for_row(count, [&](int64_t i, int64_t n) {
    const Vec v = (load_some(x + i, n) - center) * scale;
    store_some(out + i, fma(v, load_some(weight + i, n), load_some(bias + i, n)), n);
  });
}

constexpr isa::NormFunctions kNormFunctions = {rms_row, add_rms_row, layer_row};

}  // namespace
}  // namespace bolide
