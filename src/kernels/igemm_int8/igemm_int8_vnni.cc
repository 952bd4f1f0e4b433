// Int8 products with VNNI. Tiling: up to 6 rows by 64 columns, 24 sums in registers; four bytes of a row are broadcast,
// 64 columns of weights loaded: 24 vpdpbusd for 10 loads. Narrower panels take more rows. Bound: vpdpbusd's rate.
#include <immintrin.h>

#include "kernels/igemm_int8/igemm_int8.h"

namespace bolide::vnni {
namespace {

#include "kernels/igemm_int8/igemm_int8_finish_avx512.h"

template <int kRows, int kStrips, bool kFlip>
void tile(const Int8BlockArgs& a, int64_t row0) {
  __m512i sums[kRows][kStrips];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) sums[m][s] = _mm512_setzero_si512();
  if (a.finish.kind == Int8Finish::kAdded) prefetch_rows(a.finish, row0, kRows);
  const __m512i flip = _mm512_set1_epi8(-128);
  const int8_t* w = a.weights;
  for (int64_t t = 0; t < a.taps; ++t) {
    const uint8_t* x[kRows];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) x[m] = a.pixels[t * a.pixel_stride + row0 + m];
    for (int64_t q = 0; q < a.quads; ++q) {
      __m512i weights[kStrips];
#pragma GCC unroll 4
      for (int s = 0; s < kStrips; ++s) weights[s] = _mm512_loadu_si512(w + s * 64);
      w += kStrips * 64;
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        int32_t four;
        __builtin_memcpy(&four, x[m] + q * 4, 4);
        __m512i bytes = _mm512_set1_epi32(four);
        if constexpr (kFlip) bytes = _mm512_xor_si512(bytes, flip);
#pragma GCC unroll 4
        for (int s = 0; s < kStrips; ++s) sums[m][s] = _mm512_dpbusd_epi32(sums[m][s], bytes, weights[s]);
      }
    }
  }
  alignas(64) int32_t out[kRows * kInt8PanelColumns];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) _mm512_store_si512(out + m * kInt8PanelColumns + s * 16, sums[m][s]);
  finish<true>(a.finish, out, row0, kRows, a.columns);
}

template <int kRows, int kStrips>
void tile(const Int8BlockArgs& a, int64_t row0) {
  a.flip ? tile<kRows, kStrips, true>(a, row0) : tile<kRows, kStrips, false>(a, row0);
}

template <int kStrips>
void block(const Int8BlockArgs& a) {
  constexpr int kMost = kStrips == 4 ? 6 : kStrips == 3 ? 8 : 12;
  int64_t row = 0;
  for (; row + kMost <= a.rows; row += kMost) tile<kMost, kStrips>(a, row);
  if constexpr (kMost > 8)
    if (row + 8 <= a.rows) tile<8, kStrips>(a, row), row += 8;
  if constexpr (kMost > 6)
    if (row + 6 <= a.rows) tile<6, kStrips>(a, row), row += 6;
  switch (a.rows - row) {
    case 1: return tile<1, kStrips>(a, row);
    case 2: return tile<2, kStrips>(a, row);
    case 3: return tile<3, kStrips>(a, row);
    case 4: return tile<4, kStrips>(a, row);
    case 5: return tile<5, kStrips>(a, row);
    default: return;
  }
}

}  // namespace

void int8_block(const Int8BlockArgs& args) {
  switch (args.strips) {
    case 1: return block<1>(args);
    case 2: return block<2>(args);
    case 3: return block<3>(args);
    default: return block<4>(args);
  }
}

// Four taps of 64 channels are interleaved to four registers of 16 channels (in each lane of 16 bytes: 4j to 4j + 3).
void int8_depthwise(const Int8DepthwiseArgs& a) {
  const Int8Finish& f = a.finish;
  const bool wide = a.columns > 16 && f.kind == Int8Finish::kCodes && f.row_sums == nullptr;
  alignas(64) int32_t offsets[kInt8PanelColumns];
  alignas(64) float scales[kInt8PanelColumns];
  if (wide)
    for (int i = 0; i < kInt8PanelColumns; ++i) {  // register i / 16, lane i % 16 / 4
      const int column = i % 16 / 4 * 16 + i / 16 * 4 + i % 4;
      offsets[i] = f.offsets[column], scales[i] = f.scales[column];
    }
  const __mmask64 mask = a.columns >= 64 ? ~__mmask64{0} : (__mmask64{1} << a.columns) - 1;
  const __m512i flip = a.flip ? _mm512_set1_epi8(-128) : _mm512_setzero_si512();
  for (int64_t row = 0; row < a.rows; ++row) {
    __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    const int8_t* w = a.weights;
    for (int64_t t = 0; t < a.taps; t += 4, w += 256) {
      __m512i x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int64_t tap = t + i < a.taps ? t + i : a.taps - 1;  // its weights are 0
        const uint8_t* p = a.pixels[tap * a.pixel_stride + row] + a.channel;
        x[i] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, p), flip);
      }
      const __m512i low01 = _mm512_unpacklo_epi8(x[0], x[1]), high01 = _mm512_unpackhi_epi8(x[0], x[1]);
      const __m512i low23 = _mm512_unpacklo_epi8(x[2], x[3]), high23 = _mm512_unpackhi_epi8(x[2], x[3]);
      sums[0] = _mm512_dpbusd_epi32(sums[0], _mm512_unpacklo_epi16(low01, low23), _mm512_loadu_si512(w));
      sums[1] = _mm512_dpbusd_epi32(sums[1], _mm512_unpackhi_epi16(low01, low23), _mm512_loadu_si512(w + 64));
      sums[2] = _mm512_dpbusd_epi32(sums[2], _mm512_unpacklo_epi16(high01, high23), _mm512_loadu_si512(w + 128));
      sums[3] = _mm512_dpbusd_epi32(sums[3], _mm512_unpackhi_epi16(high01, high23), _mm512_loadu_si512(w + 192));
    }
    alignas(64) int32_t out[kInt8PanelColumns];
    if (wide) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) _mm512_store_si512(out + j * 16, sums[j]);
      finish_wide_rows<Int8Finish::kCodes, false, true, true, false>(f, out, offsets, scales, row, 1, a.columns);
      continue;
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      _mm_store_si128(reinterpret_cast<__m128i*>(out + j * 4), _mm512_castsi512_si128(sums[j]));
      _mm_store_si128(reinterpret_cast<__m128i*>(out + 16 + j * 4), _mm512_extracti32x4_epi32(sums[j], 1));
      _mm_store_si128(reinterpret_cast<__m128i*>(out + 32 + j * 4), _mm512_extracti32x4_epi32(sums[j], 2));
      _mm_store_si128(reinterpret_cast<__m128i*>(out + 48 + j * 4), _mm512_extracti32x4_epi32(sums[j], 3));
    }
    finish<true>(a.finish, out, row, 1, a.columns);
  }
}

void int8_round(const Int8RoundArgs& a) {
  const __m512 scale = _mm512_set1_ps(a.scale), low = _mm512_set1_ps(a.low), high = _mm512_set1_ps(a.high);
  const __m512i zero = _mm512_set1_epi32(a.zero);
  for (int64_t i = 0; i < a.count; i += 16) {
    const int64_t left = a.count - i;
    const __mmask16 mask = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    const __m512 v = _mm512_div_ps(_mm512_maskz_loadu_ps(mask, a.x + i), scale);
    // NaN becomes the least code.
    const __m512i code = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(v, low), high));
    _mm512_mask_cvtepi32_storeu_epi8(a.out + i, mask, _mm512_add_epi32(code, zero));
  }
}

void int8_range(const float* x, int64_t count, float* least, float* most) {
  __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t left = count - i;
    const __mmask16 mask = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    const __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
    low = _mm512_min_ps(v, low), high = _mm512_max_ps(v, high);  // NaN: what was there
  }
  *least = _mm512_reduce_min_ps(low), *most = _mm512_reduce_max_ps(high);
}

void int8_add(const Int8AddArgs& a) {
  const __m512 ratio_a = _mm512_set1_ps(a.ratio_a), ratio_b = _mm512_set1_ps(a.ratio_b);
  const __m512 rest = _mm512_set1_ps(a.rest), low = _mm512_set1_ps(a.low), high = _mm512_set1_ps(a.high);
  for (int64_t i = 0; i < a.count; i += 16) {
    const int64_t left = a.count - i;
    const __mmask16 mask = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    const __m512 x = bytes_as_floats(mask, a.a + i, a.a_signed), y = bytes_as_floats(mask, a.b + i, a.b_signed);
    const __m512 v = _mm512_fmadd_ps(x, ratio_a, _mm512_fmadd_ps(y, ratio_b, rest));
    const __m512i code = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(v, low), high));
    _mm512_mask_cvtepi32_storeu_epi8(a.out + i, mask, code);
  }
}

void int8_open(const uint8_t* x, int64_t count, bool is_signed, int32_t zero, float scale, float* out) {
  const __m512 zeros = _mm512_set1_ps(static_cast<float>(zero)), scales = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t left = count - i;
    const __mmask16 mask = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    const __m512 v = _mm512_mul_ps(_mm512_sub_ps(bytes_as_floats(mask, x + i, is_signed), zeros), scales);
    _mm512_mask_storeu_ps(out + i, mask, v);
  }
}

void int8_look_up(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* out) {
  const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
  const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
  for (int64_t i = 0; i < count; i += 64) {
    const int64_t left = count - i;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i v = _mm512_maskz_loadu_epi8(mask, x + i);
    const __m512i low = _mm512_permutex2var_epi8(t0, v, t1), high = _mm512_permutex2var_epi8(t2, v, t3);
    _mm512_mask_storeu_epi8(out + i, mask, _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high));
  }
}

}  // namespace bolide::vnni
