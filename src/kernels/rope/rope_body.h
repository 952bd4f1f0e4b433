// One token's angles serve all of its heads; a head is read and written once.
#pragma once

#include "kernels/rope/rope_isa.h"
#include "kernels/simd/math.h"
#include "kernels/simd/row.h"

namespace bolide {
namespace {

void angles(float position, const float* frequencies, float factor, int64_t half, float* cosine, float* sine) {
  for_row(half, [&](int64_t i, int64_t n) {
    Vec c, s;
    cos_sin(set(position) * load_some(frequencies + i, n), &c, &s);
    store_some(cosine + i, c * set(factor), n);
    store_some(sine + i, s * set(factor), n);
  });
}

void rotate(const float* x, const float* cosine, const float* sine, int64_t half, int64_t head_dim, float* out) {
  for_row(half, [&](int64_t i, int64_t n) {
    const Vec a = load_some(x + i, n), b = load_some(x + half + i, n);
    const Vec c = load_some(cosine + i, n), s = load_some(sine + i, n);
    store_some(out + i, fms(a, c, b * s), n);
    store_some(out + half + i, fma(b, c, a * s), n);
  });
  for_row(head_dim - 2 * half,
          [&](int64_t i, int64_t n) { store_some(out + 2 * half + i, load_some(x + 2 * half + i, n), n); });
}

void to_bf16(const float* x, int64_t count, uint16_t* out) {
  for_row(count, [&](int64_t i, int64_t n) {
    if (n == kLanes) return store_bf16(out + i, load(x + i));
    store_bf16_n(out + i, load_n(x + i, n), n);
  });
}

constexpr isa::RopeFunctions kRopeFunctions = {angles, rotate, to_bf16};

}  // namespace
}  // namespace bolide
