// Roofs with AVX-512. Reading: 512-bit loads, or-ed together, from 1 to 8 streams with software prefetch.
#if defined(__x86_64__)
#include <immintrin.h>

#include "measure/machine_kernels.h"

namespace bolide::roofs {
namespace {

constexpr int64_t kLine = 64;

// 4 lines of each stream per round.
template <int kStreams, int kAhead>
uint64_t read(const std::byte* data, int64_t bytes) {
  const int64_t stream_bytes = bytes / kStreams;
  __m512i sum[kStreams > 1 ? kStreams : 4];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  for (int64_t at = 0; at < stream_bytes; at += 4 * kLine) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
      for (int line = 0; line < 4; ++line) {
        const std::byte* p = data + s * stream_bytes + at + line * kLine;
        if constexpr (kAhead > 0) _mm_prefetch(reinterpret_cast<const char*>(p + kAhead), _MM_HINT_T0);
        __m512i& into = sum[kStreams > 1 ? s : line];
        into = _mm512_or_si512(into, _mm512_load_si512(p));
      }
    }
  }
  for (int s = 1; s < (kStreams > 1 ? kStreams : 4); ++s) sum[0] = _mm512_or_si512(sum[0], sum[s]);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sum[0]);
  return words[0] ^ words[7];
}

constexpr ReadVariant kReads[] = {
    {"avx512", read<1, 0>},
    {"avx512, prefetch 1024 B ahead", read<1, 1024>},
    {"avx512, prefetch 4096 B ahead", read<1, 4096>},
    {"avx512, 4 streams", read<4, 0>},
    {"avx512, 4 streams, prefetch 512 B ahead", read<4, 512>},
    {"avx512, 4 streams, prefetch 2048 B ahead", read<4, 2048>},
    {"avx512, 8 streams, prefetch 512 B ahead", read<8, 512>},
};

constexpr int kSums = 16;

float multiply_add(int64_t iterations) {
  const __m512 factor = _mm512_set1_ps(0.9999f);
  const __m512 term = _mm512_set1_ps(1e-4f);
  __m512 sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_fmadd_ps(sum[i], factor, term);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}

}  // namespace

List<ReadVariant> read_avx512() { return {kReads, static_cast<int>(sizeof kReads / sizeof kReads[0])}; }
Arithmetic fp32_avx512() { return {"avx512 vfmadd213ps", multiply_add, kSums * 16 * 2}; }

}  // namespace bolide::roofs
#endif
