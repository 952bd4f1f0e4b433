// bf16 weights times bf16 activations with vdpbf16ps: two products a lane. Twice the rate of FMA on AMD's Zen 4 and 5,
// half of it on Intel's Emerald Rapids, so chosen by vendor. Tiling and order of sums as float_strips_impl.h, one step
// along K being a pair.
#include <immintrin.h>

#include "kernels/linear/float_kernels.h"

namespace bolide::avx512bf16 {
namespace {

template <int S, int M>
inline void block(const FloatArgs& a, const uint8_t* weights, int64_t column) {
  constexpr int64_t kPrefetch = 8192;
  __m512 acc[S][M];
#pragma GCC unroll 16
  for (int s = 0; s < S; ++s)
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[s][m] = _mm512_setzero_ps();
  const float* x = a.panel;  // pairs of bf16
  for (int64_t k = 0; k < a.k; k += 2, x += M, weights += 64) {
    __m512bh w[S];
#pragma GCC unroll 16
    for (int s = 0; s < S; ++s) {
      const uint8_t* p = weights + static_cast<size_t>(s) * a.strip_bytes;
      _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetch), _MM_HINT_T1);
      w[s] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const auto pair = reinterpret_cast<__m512bh>(_mm512_set1_ps(x[m]));
#pragma GCC unroll 16
      for (int s = 0; s < S; ++s) acc[s][m] = _mm512_dpbf16_ps(acc[s][m], w[s], pair);
    }
  }
#pragma GCC unroll 16
  for (int s = 0; s < S; ++s) {
    const int64_t at = column + s * kStripRows;
    const int64_t left = a.target.columns - at;
    if (left <= 0) return;
    const __mmask16 mask = left >= kStripRows ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    const StripTarget& t = a.target;
    const __m512 scale = t.scale != nullptr ? _mm512_maskz_loadu_ps(mask, t.scale + at) : _mm512_set1_ps(1.f);
    const __m512 bias = t.bias != nullptr ? _mm512_maskz_loadu_ps(mask, t.bias + at) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      if (m >= t.tokens) break;
      __m512 sum = _mm512_add_ps(_mm512_mul_ps(acc[s][m], scale), bias);
      if (t.residual != nullptr)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, t.residual + m * t.residual_stride + at));
      _mm512_mask_storeu_ps(t.out + m * t.out_stride + at, mask, sum);
    }
  }
}

template <int kMost, int M>
inline void blocks(const FloatArgs& a) {
  int64_t i = 0;
  const auto weights = [&] { return a.weights + static_cast<size_t>(i) * a.strip_bytes; };
  for (; i + kMost <= a.strips; i += kMost) block<kMost, M>(a, weights(), i * kStripRows);
  if constexpr (kMost > 4)
    for (; i + 4 <= a.strips; i += 4) block<4, M>(a, weights(), i * kStripRows);
  if constexpr (kMost > 2)
    for (; i + 2 <= a.strips; i += 2) block<2, M>(a, weights(), i * kStripRows);
  for (; i < a.strips; ++i) block<1, M>(a, weights(), i * kStripRows);
}

}  // namespace

void bf16_strips(const FloatArgs& args) {
  switch (args.tile) {
    case 1: return blocks<8, 1>(args);
    case 2: return blocks<4, 2>(args);
    case 4: return blocks<4, 4>(args);
    case 6: return blocks<2, 6>(args);
    case 8: return blocks<2, 8>(args);
    case 12: return blocks<2, 12>(args);
    default: __builtin_trap();
  }
}

}  // namespace bolide::avx512bf16
