// Float weights times f32 activations with AVX-512 FMA. Bound: FMA for 12 tokens (2 x 12 sums), memory for one.
#include <immintrin.h>

#include "kernels/linear/float_kernels.h"

namespace bolide::avx512 {
namespace {

using Row16 = __m512;

inline Row16 zero16() { return _mm512_setzero_ps(); }
inline Row16 fma16(Row16 w, const float* x, Row16 sum) { return _mm512_fmadd_ps(w, _mm512_set1_ps(*x), sum); }
inline Row16 load_f32(const uint8_t* p) { return _mm512_loadu_ps(p); }
inline Row16 load_f16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Row16 load_bf16_even(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
inline Row16 load_bf16_odd(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
// The magnitude of a code at the place of a half's exponent and significand is 2^-8 of its value, denormals too; sign
// extension brings the sign to the top.
inline Row16 load_f8e4m3(const uint8_t* p) {
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 7);
  const __m256i halves = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<short>(0xbf80)));
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.f));
}
inline Row16 load_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline void store16(float* p, Row16 v) { _mm512_storeu_ps(p, v); }
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

class Store16 {
 public:
  Store16(const StripTarget& target, int64_t column) : t_(target), column_(column) {
    const int64_t left = t_.columns - column;
    mask_ = left >= kStripRows ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    scale_ = t_.scale != nullptr ? _mm512_maskz_loadu_ps(mask_, t_.scale + column) : _mm512_set1_ps(1.f);
    bias_ = t_.bias != nullptr ? _mm512_maskz_loadu_ps(mask_, t_.bias + column) : _mm512_setzero_ps();
  }
  void operator()(Row16 sum, int m) const {
    sum = _mm512_add_ps(_mm512_mul_ps(sum, scale_), bias_);
    if (t_.residual != nullptr)
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask_, t_.residual + m * t_.residual_stride + column_));
    _mm512_mask_storeu_ps(t_.out + m * t_.out_stride + column_, mask_, sum);
  }

 private:
  const StripTarget& t_;
  int64_t column_;
  __mmask16 mask_;
  __m512 scale_, bias_;
};

#include "kernels/linear/float_strips_impl.h"

template <FloatStorage W>
void tiles(const FloatArgs& a) {
  switch (a.tile) {
    case 1: return float_blocks<W, 8, 1>(a);
    case 2: return float_blocks<W, 4, 2>(a);
    case 4: return float_blocks<W, 4, 4>(a);
    case 6: return float_blocks<W, 2, 6>(a);
    case 8: return float_blocks<W, 2, 8>(a);
    case 12: return float_blocks<W, 2, 12>(a);
    default: __builtin_trap();
  }
}

}  // namespace

void float_strips(const FloatArgs& args) {
  switch (args.storage) {
    case FloatStorage::kF32: return tiles<FloatStorage::kF32>(args);
    case FloatStorage::kF16: return tiles<FloatStorage::kF16>(args);
    case FloatStorage::kBF16: return tiles<FloatStorage::kBF16>(args);
    case FloatStorage::kF8E4M3: return tiles<FloatStorage::kF8E4M3>(args);
    case FloatStorage::kI8: return tiles<FloatStorage::kI8>(args);
  }
}

void widen_codes(FloatStorage storage, const uint8_t* strip, int64_t k, float* out) {
  storage == FloatStorage::kI8 ? widen_strip<FloatStorage::kI8>(strip, k, out)
                               : widen_strip<FloatStorage::kF8E4M3>(strip, k, out);
}

}  // namespace bolide::avx512
