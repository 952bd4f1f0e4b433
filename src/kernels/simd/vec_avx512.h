// Vec: 16 floats of AVX-512 F/BW/DQ/VL. vec_avx2.h has the same names with 8; bodies (*_body.h) are written once
// against them. Included only by files compiled for the instruction set: everything has internal linkage.
#pragma once

// GCC 12 takes the undefined source operands of its own intrinsics for mistakes (GCC PR 105593).
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

namespace bolide {
namespace {

#define BOLIDE_INLINE [[gnu::always_inline]] inline

constexpr int kLanes = 16;
constexpr int kRegisters = 32;

struct Vec {
  __m512 v;
};
struct IntVec {
  __m512i v;
};
struct Mask {
  __mmask16 m;
};

BOLIDE_INLINE __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

BOLIDE_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
BOLIDE_INLINE Vec set(float x) { return {_mm512_set1_ps(x)}; }
BOLIDE_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
BOLIDE_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
// The first n lanes, 0 <= n < kLanes; the rest of a load is 0.
BOLIDE_INLINE Vec load_n(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
BOLIDE_INLINE void store_n(float* p, Vec a, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }

BOLIDE_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a b + c
BOLIDE_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a b
BOLIDE_INLINE Vec fms(Vec a, Vec b, Vec c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }    // a b - c
// The second operand if either is NaN.
BOLIDE_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
BOLIDE_INLINE Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
BOLIDE_INLINE Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
BOLIDE_INLINE Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// Magnitude of a, sign of s.
BOLIDE_INLINE Vec copy_sign(Vec a, Vec s) {
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return {
      _mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, _mm512_castps_si512(s.v), _mm512_castps_si512(a.v), 0xCA))};
}
// a 2^n for integral n in f32 range.
BOLIDE_INLINE Vec scale_by_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }

BOLIDE_INLINE Mask less(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
BOLIDE_INLINE Mask greater_equal(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
BOLIDE_INLINE Mask equal(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
BOLIDE_INLINE Mask is_nan(Vec a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
BOLIDE_INLINE Mask either(Mask a, Mask b) { return {static_cast<__mmask16>(a.m | b.m)}; }
BOLIDE_INLINE uint32_t bits(Mask m) { return m.m; }
BOLIDE_INLINE Vec select(Mask m, Vec yes, Vec no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
// Lane i is a's if lo <= i < hi, else b's. Any lo and hi.
BOLIDE_INLINE Vec within(Vec a, Vec b, int64_t lo, int64_t hi) {
  const int64_t end = hi < 0 ? 0 : hi > kLanes ? kLanes : hi, begin = lo < 0 ? 0 : lo > kLanes ? kLanes : lo;
  const auto mask = static_cast<__mmask16>(((1u << end) - 1u) & ~((1u << begin) - 1u));
  return {_mm512_mask_blend_ps(mask, b.v, a.v)};
}

// Sum and largest of all lanes, in a fixed order.
BOLIDE_INLINE float sum(Vec a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
BOLIDE_INLINE float largest(Vec a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
// Sum in f64.
BOLIDE_INLINE double sum_f64(Vec a) {
  const __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(a.v));
  const __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1));
  const __m512d both = _mm512_add_pd(lo, hi);
  const __m256d b = _mm256_add_pd(_mm512_castpd512_pd256(both), _mm512_extractf64x4_pd(both, 1));
  const __m128d c = _mm_add_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));
  return _mm_cvtsd_f64(_mm_add_sd(c, _mm_unpackhi_pd(c, c)));
}

BOLIDE_INLINE Vec widen_bf16(__m256i h) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
BOLIDE_INLINE Vec load_bf16(const uint16_t* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
BOLIDE_INLINE Vec load_bf16_n(const uint16_t* p, int64_t n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
// Nearest even; NaN stays NaN.
BOLIDE_INLINE __m256i narrow_bf16(Vec a) {
  const __m512i bits32 = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits32, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits32, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits32, 16), _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan(a).m, rounded, quiet));
}
BOLIDE_INLINE void store_bf16(uint16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(a));
}
BOLIDE_INLINE void store_bf16_n(uint16_t* p, Vec a, int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(a));
}

// angle = quadrant pi/2 + result, |result| <= pi/4; reduced in f64, good to |angle| < 1e9.
BOLIDE_INLINE Vec reduce_angle(Vec angle, IntVec* quadrant) {
  const __m512d two_over_pi = _mm512_set1_pd(0.63661977236758134308);
  const __m512d high = _mm512_set1_pd(1.5707963267948965580), low = _mm512_set1_pd(6.1232339957367658861e-17);
  const __m512d x[2] = {_mm512_cvtps_pd(_mm512_castps512_ps256(angle.v)),
                        _mm512_cvtps_pd(_mm512_extractf32x8_ps(angle.v, 1))};
  __m256i count[2];
  __m256 rest[2];
  for (int i = 0; i < 2; ++i) {
    const __m512d k = _mm512_roundscale_pd(_mm512_mul_pd(x[i], two_over_pi), _MM_FROUND_TO_NEAREST_INT);
    const __m512d r = _mm512_fnmadd_pd(k, low, _mm512_fnmadd_pd(k, high, x[i]));
    count[i] = _mm512_cvtpd_epi32(k);
    rest[i] = _mm512_cvtpd_ps(r);
  }
  quadrant->v = _mm512_inserti64x4(_mm512_castsi256_si512(count[0]), count[1], 1);
  return {_mm512_insertf32x8(_mm512_castps256_ps512(rest[0]), rest[1], 1)};
}
BOLIDE_INLINE Mask has_bit(IntVec a, int bit) { return {_mm512_test_epi32_mask(a.v, _mm512_set1_epi32(bit))}; }
BOLIDE_INLINE IntVec plus(IntVec a, int b) { return {_mm512_add_epi32(a.v, _mm512_set1_epi32(b))}; }
BOLIDE_INLINE Vec negate_if(Mask m, Vec a) {
  return {_mm512_castsi512_ps(_mm512_mask_xor_epi32(_mm512_castps_si512(a.v), m.m, _mm512_castps_si512(a.v),
                                                    _mm512_set1_epi32(static_cast<int>(0x80000000u))))};
}

// 16 x 16 transpose of 32-bit lanes.
BOLIDE_INLINE void transpose(IntVec (&r)[kLanes]) {
  __m512i a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_epi32(r[2 * i].v, r[2 * i + 1].v);
    a[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i].v, r[2 * i + 1].v);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
  // b[4 q + c] holds column 4 l + c of rows 4 q .. 4 q + 3 in its 128-bit lane l.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);
    const __m512i low23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
    const __m512i high23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
    r[c].v = _mm512_shuffle_i32x4(low01, low23, 0x88);
    r[8 + c].v = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    r[4 + c].v = _mm512_shuffle_i32x4(high01, high23, 0x88);
    r[12 + c].v = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
}
BOLIDE_INLINE IntVec load_words(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
BOLIDE_INLINE IntVec load_words_n(const uint32_t* p, int64_t n) {
  return {_mm512_maskz_loadu_epi32(first_lanes(n), p)};
}
BOLIDE_INLINE void store_words(uint32_t* p, IntVec a) { _mm512_storeu_si512(p, a.v); }
// A word is two bf16: the first in memory is the low half.
BOLIDE_INLINE Vec low_bf16(IntVec a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
BOLIDE_INLINE Vec high_bf16(IntVec a) {
  return {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}

}  // namespace
}  // namespace bolide
