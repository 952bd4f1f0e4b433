// Roofs with AVX2 and FMA. Reading: 256-bit loads, or-ed together, from 1 or 4 streams with software prefetch.
#if defined(__x86_64__)
#include <immintrin.h>

#include "measure/machine_kernels.h"

namespace bolide::roofs {
namespace {

constexpr int64_t kLine = 64;

template <int kStreams, int kAhead>
uint64_t read(const std::byte* data, int64_t bytes) {
  const int64_t stream_bytes = bytes / kStreams;
  __m256i sum[2 * kStreams];
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  for (int64_t at = 0; at < stream_bytes; at += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* p = data + s * stream_bytes + at;
      if constexpr (kAhead > 0) _mm_prefetch(reinterpret_cast<const char*>(p + kAhead), _MM_HINT_T0);
      sum[2 * s] = _mm256_or_si256(sum[2 * s], _mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
      sum[2 * s + 1] = _mm256_or_si256(sum[2 * s + 1], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32)));
    }
  }
  for (int s = 1; s < 2 * kStreams; ++s) sum[0] = _mm256_or_si256(sum[0], sum[s]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum[0], 0)) ^
         static_cast<uint64_t>(_mm256_extract_epi64(sum[0], 3));
}

constexpr ReadVariant kReads[] = {
    {"avx2", read<1, 0>},
    {"avx2, prefetch 1024 B ahead", read<1, 1024>},
    {"avx2, prefetch 4096 B ahead", read<1, 4096>},
    {"avx2, 4 streams", read<4, 0>},
    {"avx2, 4 streams, prefetch 512 B ahead", read<4, 512>},
};

// 12 sums cover the latency of two multiply-adds a cycle (4 or 5 cycles) and leave registers for the factors.
constexpr int kSums = 12;

float multiply_add(int64_t iterations) {
  const __m256 factor = _mm256_set1_ps(0.9999f);
  const __m256 term = _mm256_set1_ps(1e-4f);
  __m256 sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sum[i] = _mm256_fmadd_ps(sum[i], factor, term);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return _mm256_cvtss_f32(sum[0]);
}

}  // namespace

List<ReadVariant> read_avx2() { return {kReads, static_cast<int>(sizeof kReads / sizeof kReads[0])}; }
Arithmetic fp32_avx2() { return {"avx2 vfmadd213ps", multiply_add, kSums * 8 * 2}; }

}  // namespace bolide::roofs
#endif
