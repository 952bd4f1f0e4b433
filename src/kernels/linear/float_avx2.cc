// Float weights times f32 activations with AVX2 and FMA: a row of 16 sums is two registers, so a strip by 6 tokens
// fills 12 of the 16.
#include <immintrin.h>

#include "kernels/linear/float_kernels.h"

namespace bolide::avx2 {
namespace {

struct Row16 {
  __m256 low, high;
};

inline Row16 zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Row16 fma16(Row16 w, const float* x, Row16 sum) {
  const __m256 all = _mm256_broadcast_ss(x);
  return {_mm256_fmadd_ps(w.low, all, sum.low), _mm256_fmadd_ps(w.high, all, sum.high)};
}
inline Row16 load_f32(const uint8_t* p) {
  const auto* f = reinterpret_cast<const float*>(p);
  return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
inline Row16 load_f16(const uint8_t* p) {
  const auto* h = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline Row16 load_bf16_even(const uint8_t* p) {
  const auto* pairs = reinterpret_cast<const __m256i*>(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(pairs), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(pairs + 1), 16))};
}
inline Row16 load_bf16_odd(const uint8_t* p) {
  const auto* pairs = reinterpret_cast<const __m256i*>(p);
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(pairs), mask)),
          _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(pairs + 1), mask))};
}
// As float_avx512.cc.
inline Row16 load_f8e4m3(const uint8_t* p) {
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 7);
  const __m256i halves = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<short>(0xbf80)));
  const __m256 unit = _mm256_set1_ps(256.f);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), unit),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), unit)};
}
inline Row16 load_i8(const uint8_t* p) {
  const auto* codes = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(codes))),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(_mm_loadu_si128(codes), 8)))};
}
inline void store16(float* p, Row16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

class Store16 {
 public:
  Store16(const StripTarget& target, int64_t column) : t_(target), column_(column) {
    const int64_t left = t_.columns - column;
    columns_ = left >= kStripRows ? kStripRows : static_cast<int>(left);
  }
  void operator()(Row16 sum, int m) const {
    float* out = t_.out + m * t_.out_stride + column_;
    float wide[kStripRows];
    _mm256_storeu_ps(wide, sum.low);
    _mm256_storeu_ps(wide + 8, sum.high);
    for (int i = 0; i < columns_; ++i) {
      float value = wide[i];
      if (t_.scale != nullptr) value *= t_.scale[column_ + i];
      if (t_.bias != nullptr) value += t_.bias[column_ + i];
      if (t_.residual != nullptr) value += t_.residual[m * t_.residual_stride + column_ + i];
      out[i] = value;
    }
  }

 private:
  const StripTarget& t_;
  int64_t column_;
  int columns_;
};

#include "kernels/linear/float_strips_impl.h"

template <FloatStorage W>
void tiles(const FloatArgs& a) {
  switch (a.tile) {
    case 1: return float_blocks<W, 4, 1>(a);
    case 2: return float_blocks<W, 2, 2>(a);
    case 4: return float_blocks<W, 1, 4>(a);
    case 6: return float_blocks<W, 1, 6>(a);
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

}  // namespace bolide::avx2
