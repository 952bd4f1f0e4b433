// Roof of bf16 dot products: vdpbf16ps, 32 products a 512-bit instruction.
#if defined(__x86_64__)
#include <immintrin.h>

#include "measure/machine_kernels.h"

namespace bolide::roofs {
namespace {

constexpr int kSums = 16;

float dot(int64_t iterations) {
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(-0.5f), _mm512_set1_ps(1.0f));
  __m512 sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}

}  // namespace

Arithmetic bf16_avx512() { return {"avx512 vdpbf16ps", dot, kSums * 32 * 2}; }

}  // namespace bolide::roofs
#endif
