// Roof of int8 dot products: vpdpbusd, 64 products a 512-bit instruction.
#if defined(__x86_64__)
#include <immintrin.h>

#include "measure/machine_kernels.h"

namespace bolide::roofs {
namespace {

constexpr int kSums = 16;

float dot(int64_t iterations) {
  const __m512i a = _mm512_set1_epi32(0x01030207);
  const __m512i b = _mm512_set1_epi32(0x02ff0105);
  __m512i sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = _mm512_set1_epi32(i);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_xor_si512(sum[0], sum[i]);
  alignas(64) int32_t words[16];
  _mm512_store_si512(words, sum[0]);
  return static_cast<float>(words[0]);
}

}  // namespace

Arithmetic int8_vnni() { return {"avx512 vpdpbusd", dot, kSums * 64 * 2}; }

}  // namespace bolide::roofs
#endif
