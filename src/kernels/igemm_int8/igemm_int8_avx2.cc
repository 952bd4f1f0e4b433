// Int8 products with AVX2. vpmaddubsw saturates sums of two products of u8 x s8, so even and odd bytes are multiplied
// apart (a product alone fits 16 bits): six operations for 32 products.
#include <immintrin.h>

#include "kernels/igemm_int8/igemm_int8.h"

namespace bolide::avx2 {
namespace {

inline __m256i dot(__m256i sum, __m256i even, __m256i odd, __m256i weights) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i a = _mm256_madd_epi16(_mm256_maddubs_epi16(even, weights), ones);
  const __m256i b = _mm256_madd_epi16(_mm256_maddubs_epi16(odd, weights), ones);
  return _mm256_add_epi32(sum, _mm256_add_epi32(a, b));
}

inline __m256 clamped(__m256 v, float low, float high) {
  return _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(low)), _mm256_set1_ps(high));
}
inline __m256 rounded(__m256 v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// Eight bytes, of which `count` may be read.
inline __m256i widened(const uint8_t* p, int64_t count, bool is_signed) {
  uint64_t bytes = 0;
  if (count >= 8)
    __builtin_memcpy(&bytes, p, 8);
  else
    for (int64_t i = 0; i < count; ++i) bytes |= static_cast<uint64_t>(p[i]) << (8 * i);
  const __m128i eight = _mm_cvtsi64_si128(static_cast<int64_t>(bytes));
  return is_signed ? _mm256_cvtepi8_epi32(eight) : _mm256_cvtepu8_epi32(eight);
}
inline void store_bytes(uint8_t* p, __m256i codes, int64_t count) {
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi32(255));
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  const int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
  if (count >= 8)
    __builtin_memcpy(p, &bytes, 8);
  else
    __builtin_memcpy(p, &bytes, static_cast<size_t>(count));
}
inline __m256i tail_mask(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count < 8 ? count : 8)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline __m256 loaded(const float* p, int64_t count) {
  return count >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, tail_mask(count));
}
inline __m256i codes_of(__m256 v, float low, float high, int32_t zero) {
  return _mm256_add_epi32(_mm256_cvtps_epi32(clamped(v, low, high)), _mm256_set1_epi32(zero));
}

// sums [rows][64].
void finish(const Int8Finish& f, const int32_t* sums, int64_t row0, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < columns; n += 8) {
      const int64_t left = columns - n;
      __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + m * kInt8PanelColumns + n));
      sum = _mm256_add_epi32(sum, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(f.offsets + n)));
      if (f.row_sums != nullptr) {
        const __m256i zeros = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(f.column_zeros + n));
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(_mm256_set1_epi32(f.row_sums[row0 + m]), zeros));
      }
      const int64_t at = (row0 + m) * f.out_stride + n;
      if (f.kind == Int8Finish::kSums) {
        _mm256_maskstore_epi32(static_cast<int32_t*>(f.out) + at, tail_mask(left), sum);
        continue;
      }
      const __m256 scale = _mm256_loadu_ps(f.scales + n);
      if (f.kind == Int8Finish::kF32) {
        const __m256 bias = f.bias != nullptr ? _mm256_loadu_ps(f.bias + n) : _mm256_setzero_ps();
        const __m256 y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, bias);
        _mm256_maskstore_ps(static_cast<float*>(f.out) + at, tail_mask(left), clamped(y, f.low, f.high));
        continue;
      }
      const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale);
      auto* const to = static_cast<uint8_t*>(f.out) + at;
      if (f.kind == Int8Finish::kCodes) {
        store_bytes(to, codes_of(v, f.low, f.high, f.zero), left);
        continue;
      }
      const __m256 c = clamped(rounded(v), f.low, f.high);
      const __m256 r =
          _mm256_cvtepi32_ps(widened(f.residual + (row0 + m) * f.residual_stride + n, left, f.residual_signed));
      const __m256 other = _mm256_fmadd_ps(r, _mm256_set1_ps(f.residual_ratio), _mm256_set1_ps(f.rest));
      store_bytes(to, codes_of(_mm256_fmadd_ps(c, _mm256_set1_ps(f.ratio), other), f.low2, f.high2, 0), left);
    }
}

// kRows rows by one strip.
template <int kRows>
void tile(const Int8BlockArgs& a, int64_t row0, int strip, int32_t* out) {
  __m256i sums[kRows][2];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
  const __m256i flip = a.flip ? _mm256_set1_epi8(-128) : _mm256_setzero_si256();
  const __m256i mask = _mm256_set1_epi16(255);
  const int8_t* w = a.weights + strip * 64;
  const int64_t step = int64_t{64} * a.strips;
  for (int64_t t = 0; t < a.taps; ++t) {
    const uint8_t* x[kRows];
    for (int m = 0; m < kRows; ++m) x[m] = a.pixels[t * a.pixel_stride + row0 + m];
    for (int64_t q = 0; q < a.quads; ++q, w += step) {
      const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
      const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 32));
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        int32_t four;
        __builtin_memcpy(&four, x[m] + q * 4, 4);
        const __m256i bytes = _mm256_xor_si256(_mm256_set1_epi32(four), flip);
        const __m256i even = _mm256_and_si256(bytes, mask), odd = _mm256_andnot_si256(mask, bytes);
        sums[m][0] = dot(sums[m][0], even, odd, w0);
        sums[m][1] = dot(sums[m][1], even, odd, w1);
      }
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + m * kInt8PanelColumns + strip * 16 + h * 8), sums[m][h]);
}

}  // namespace

void int8_block(const Int8BlockArgs& a) {
  alignas(64) int32_t out[4 * kInt8PanelColumns];
  int64_t row = 0;
  const auto tiles = [&]<int kRows>() {
    for (; row + kRows <= a.rows; row += kRows) {
      for (int s = 0; s < a.strips; ++s) tile<kRows>(a, row, s, out);
      finish(a.finish, out, row, kRows, a.columns);
    }
  };
  tiles.operator()<4>();
  tiles.operator()<1>();
}

void int8_depthwise(const Int8DepthwiseArgs& a) {
  const uint8_t flip = a.flip ? 0x80 : 0;
  alignas(64) int32_t out[kInt8PanelColumns];
  const __m256i mask = _mm256_set1_epi16(255);
  for (int64_t row = 0; row < a.rows; ++row) {
    __m256i sums[8] = {};
    const int8_t* w = a.weights;
    for (int64_t t = 0; t < a.taps; t += 4, w += 256) {
      alignas(32) uint8_t x[256] = {};  // [register][lane][channel][tap]
      for (int64_t i = 0; i < 4 && t + i < a.taps; ++i) {
        const uint8_t* p = a.pixels[(t + i) * a.pixel_stride + row] + a.channel;
        for (int64_t c = 0; c < a.columns; ++c)
          x[c % 16 / 4 * 64 + c / 16 * 16 + c % 4 * 4 + i] = static_cast<uint8_t>(p[c] ^ flip);
      }
      for (int h = 0; h < 8; ++h) {
        const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(x + h * 32));
        const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + h * 32));
        sums[h] = dot(sums[h], _mm256_and_si256(bytes, mask), _mm256_andnot_si256(mask, bytes), weights);
      }
    }
    for (int h = 0; h < 8; ++h) {  // register h / 2, lanes h % 2 * 2 and the next
      int32_t* const to = out + h % 2 * 32 + h / 2 * 4;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(sums[h]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), _mm256_extracti128_si256(sums[h], 1));
    }
    finish(a.finish, out, row, 1, a.columns);
  }
}

void int8_round(const Int8RoundArgs& a) {
  const __m256 scale = _mm256_set1_ps(a.scale);
  for (int64_t i = 0; i < a.count; i += 8) {
    const __m256 v = _mm256_div_ps(loaded(a.x + i, a.count - i), scale);
    store_bytes(a.out + i, codes_of(v, a.low, a.high, a.zero), a.count - i);
  }
}

void int8_range(const float* x, int64_t count, float* least, float* most) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 v = loaded(x + i, count - i);
    low = _mm256_min_ps(v, low), high = _mm256_max_ps(v, high);
  }
  alignas(32) float a[8], b[8];
  _mm256_store_ps(a, low), _mm256_store_ps(b, high);
  *least = 0, *most = 0;
  for (int i = 0; i < 8; ++i) {
    if (a[i] < *least) *least = a[i];
    if (b[i] > *most) *most = b[i];
  }
}

void int8_add(const Int8AddArgs& a) {
  const __m256 ratio_a = _mm256_set1_ps(a.ratio_a), ratio_b = _mm256_set1_ps(a.ratio_b);
  for (int64_t i = 0; i < a.count; i += 8) {
    const int64_t left = a.count - i;
    const __m256 x = _mm256_cvtepi32_ps(widened(a.a + i, left, a.a_signed));
    const __m256 y = _mm256_cvtepi32_ps(widened(a.b + i, left, a.b_signed));
    const __m256 sum = _mm256_fmadd_ps(x, ratio_a, _mm256_fmadd_ps(y, ratio_b, _mm256_set1_ps(a.rest)));
    store_bytes(a.out + i, codes_of(sum, a.low, a.high, 0), left);
  }
}

void int8_open(const uint8_t* x, int64_t count, bool is_signed, int32_t zero, float scale, float* out) {
  const __m256i zeros = _mm256_set1_epi32(zero);
  for (int64_t i = 0; i < count; i += 8) {
    const __m256i code = _mm256_sub_epi32(widened(x + i, count - i, is_signed), zeros);
    const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(scale));
    _mm256_maskstore_ps(out + i, tail_mask(count - i), v);
  }
}

void int8_look_up(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = table[x[i]];
}

}  // namespace bolide::avx2
