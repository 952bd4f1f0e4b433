// Vec: 8 floats of AVX2 and FMA; see vec_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace bolide {
namespace {

#define BOLIDE_INLINE [[gnu::always_inline]] inline

constexpr int kLanes = 8;
constexpr int kRegisters = 16;

struct Vec {
  __m256 v;
};
struct IntVec {
  __m256i v;
};
struct Mask {
  __m256 m;
};

BOLIDE_INLINE __m256i iota() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
BOLIDE_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), iota());
}

BOLIDE_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
BOLIDE_INLINE Vec set(float x) { return {_mm256_set1_ps(x)}; }
BOLIDE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
BOLIDE_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
// The first n lanes, 0 <= n < kLanes; the rest of a load is 0.
BOLIDE_INLINE Vec load_n(const float* p, int64_t n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
BOLIDE_INLINE void store_n(float* p, Vec a, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), a.v); }

BOLIDE_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }    // a b + c
BOLIDE_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a b
BOLIDE_INLINE Vec fms(Vec a, Vec b, Vec c) { return {_mm256_fmsub_ps(a.v, b.v, c.v)}; }    // a b - c
// The second operand if either is NaN.
BOLIDE_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
BOLIDE_INLINE Vec abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.f), a.v)}; }
BOLIDE_INLINE Vec round(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// Magnitude of a, sign of s.
BOLIDE_INLINE Vec copy_sign(Vec a, Vec s) {
  const __m256 sign = _mm256_set1_ps(-0.f);
  return {_mm256_or_ps(_mm256_and_ps(sign, s.v), _mm256_andnot_ps(sign, a.v))};
}
// a 2^n for integral n in [-252, 254]: in two steps, so that subnormal results and 2^128 come out right.
BOLIDE_INLINE Vec scale_by_power(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i first = _mm256_srai_epi32(whole, 1), second = _mm256_sub_epi32(whole, first);
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, power(first)), power(second))};
}

BOLIDE_INLINE Mask less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
BOLIDE_INLINE Mask greater_equal(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
BOLIDE_INLINE Mask equal(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
BOLIDE_INLINE Mask is_nan(Vec a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
BOLIDE_INLINE Mask either(Mask a, Mask b) { return {_mm256_or_ps(a.m, b.m)}; }
BOLIDE_INLINE uint32_t bits(Mask m) { return static_cast<uint32_t>(_mm256_movemask_ps(m.m)); }
BOLIDE_INLINE Vec select(Mask m, Vec yes, Vec no) { return {_mm256_blendv_ps(no.v, yes.v, m.m)}; }
// Lane i is a's if lo <= i < hi, else b's. Any lo and hi that fit an int.
BOLIDE_INLINE Vec within(Vec a, Vec b, int64_t lo, int64_t hi) {
  const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(lo)), iota());
  const __m256i inside = _mm256_andnot_si256(below, first_lanes(hi));
  return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(inside))};
}

// Sum and largest of all lanes, in a fixed order.
BOLIDE_INLINE float sum(Vec a) {
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
BOLIDE_INLINE float largest(Vec a) {
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
// Sum in f64.
BOLIDE_INLINE double sum_f64(Vec a) {
  const __m256d b =
      _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a.v)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1)));
  const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
  return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

BOLIDE_INLINE Vec widen_bf16(__m128i h) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))};
}
BOLIDE_INLINE Vec load_bf16(const uint16_t* p) {
  return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
BOLIDE_INLINE Vec load_bf16_n(const uint16_t* p, int64_t n) {
  alignas(16) uint16_t whole[8] = {};
  for (int64_t i = 0; i < n; ++i) whole[i] = p[i];
  return load_bf16(whole);
}
// Nearest even; NaN stays NaN.
BOLIDE_INLINE __m128i narrow_bf16(Vec a) {
  const __m256i bits32 = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits32, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits32, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits32, 16), _mm256_set1_epi32(0x40));
  const __m256i both = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan(a).m));
  return _mm_packus_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}
BOLIDE_INLINE void store_bf16(uint16_t* p, Vec a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(a)); }
BOLIDE_INLINE void store_bf16_n(uint16_t* p, Vec a, int64_t n) {
  alignas(16) uint16_t whole[8];
  store_bf16(whole, a);
  for (int64_t i = 0; i < n; ++i) p[i] = whole[i];
}

// angle = quadrant pi/2 + result, |result| <= pi/4; reduced in f64, good to |angle| < 1e9.
BOLIDE_INLINE Vec reduce_angle(Vec angle, IntVec* quadrant) {
  const __m256d two_over_pi = _mm256_set1_pd(0.63661977236758134308);
  const __m256d high = _mm256_set1_pd(1.5707963267948965580), low = _mm256_set1_pd(6.1232339957367658861e-17);
  const __m256d x[2] = {_mm256_cvtps_pd(_mm256_castps256_ps128(angle.v)),
                        _mm256_cvtps_pd(_mm256_extractf128_ps(angle.v, 1))};
  __m128i count[2];
  __m128 rest[2];
  for (int i = 0; i < 2; ++i) {
    const __m256d k = _mm256_round_pd(_mm256_mul_pd(x[i], two_over_pi), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256d r = _mm256_fnmadd_pd(k, low, _mm256_fnmadd_pd(k, high, x[i]));
    count[i] = _mm256_cvtpd_epi32(k);
    rest[i] = _mm256_cvtpd_ps(r);
  }
  quadrant->v = _mm256_inserti128_si256(_mm256_castsi128_si256(count[0]), count[1], 1);
  return {_mm256_insertf128_ps(_mm256_castps128_ps256(rest[0]), rest[1], 1)};
}
BOLIDE_INLINE Mask has_bit(IntVec a, int bit) {
  const __m256i wanted = _mm256_set1_epi32(bit);
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(a.v, wanted), wanted))};
}
BOLIDE_INLINE IntVec plus(IntVec a, int b) { return {_mm256_add_epi32(a.v, _mm256_set1_epi32(b))}; }
BOLIDE_INLINE Vec negate_if(Mask m, Vec a) { return {_mm256_xor_ps(a.v, _mm256_and_ps(m.m, _mm256_set1_ps(-0.f)))}; }

// 8 x 8 transpose of 32-bit lanes.
BOLIDE_INLINE void transpose(IntVec (&r)[kLanes]) {
  __m256i a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_epi32(r[2 * i].v, r[2 * i + 1].v);
    a[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i].v, r[2 * i + 1].v);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    r[c].v = _mm256_permute2x128_si256(b[c], b[4 + c], 0x20);
    r[4 + c].v = _mm256_permute2x128_si256(b[c], b[4 + c], 0x31);
  }
}
BOLIDE_INLINE IntVec load_words(const uint32_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
BOLIDE_INLINE IntVec load_words_n(const uint32_t* p, int64_t n) {
  return {_mm256_maskload_epi32(reinterpret_cast<const int*>(p), first_lanes(n))};
}
BOLIDE_INLINE void store_words(uint32_t* p, IntVec a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
// A word is two bf16: the first in memory is the low half.
BOLIDE_INLINE Vec low_bf16(IntVec a) { return {_mm256_castsi256_ps(_mm256_slli_epi32(a.v, 16))}; }
BOLIDE_INLINE Vec high_bf16(IntVec a) {
  return {_mm256_castsi256_ps(_mm256_and_si256(a.v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
}

}  // namespace
}  // namespace bolide
