// Block-quantised weights times int8 activations with AVX2: vpmaddubsw sums two u8 x s8 products into 16 bits, which
// holds codes up to 127; wider codes are made signed and go through vpsignb. Registers of 8 rows, so a strip is walked
// twice, by up to 4 tokens. Tiling and bounds: int8_strips_impl.h.
#include <immintrin.h>

#include "kernels/linear/int8_kernels.h"

namespace bolide::avx2 {
namespace {

constexpr int kRegisterRows = 8;
constexpr int kWideOffset = 128;
using Ints = __m256i;
using Floats = __m256;

inline Ints zero_ints() { return _mm256_setzero_si256(); }
inline Floats zero_floats() { return _mm256_setzero_ps(); }
inline Ints broadcast_int(const void* p) { return _mm256_set1_epi32(*static_cast<const int*>(p)); }
inline Floats broadcast_float(const void* p) { return _mm256_broadcast_ss(static_cast<const float*>(p)); }
inline Ints load_codes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline Floats load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Floats load_floats(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
inline Floats load_unsigned(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats load_signed(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats negate(Floats a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.f)); }
inline Floats subtract(Floats a, float b) { return _mm256_sub_ps(a, _mm256_set1_ps(b)); }
inline Ints low_nibbles(Ints w) { return _mm256_and_si256(w, _mm256_set1_epi8(15)); }
inline Ints high_nibbles(Ints w) { return low_nibbles(_mm256_srli_epi16(w, 4)); }
template <int kBits>
inline Ints shift_left(Ints w) {
  return _mm256_slli_epi16(w, kBits);
}
template <int kBits>
inline Ints shift_right(Ints w) {
  return _mm256_srli_epi16(w, kBits);
}
inline Ints and_bytes(Ints w, char mask) { return _mm256_and_si256(w, _mm256_set1_epi8(mask)); }
inline Ints or_ints(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints look_up(Ints codes) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_setr_epi8(BOLIDE_IQ4_TABLE)), codes);
}
inline Ints byte_of(Ints w, int b) {
  return _mm256_and_si256(_mm256_srl_epi32(w, _mm_cvtsi32_si128(8 * b)), _mm256_set1_epi32(255));
}
inline Floats add_floats(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats set_floats(float a) { return _mm256_set1_ps(a); }
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

// Wide codes: as signed numbers, 128 less. The panel's corrections allow for it (Int8Engine::wide_offset).
template <bool kWide>
inline Ints prepare(Ints codes) {
  if constexpr (kWide) return _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
  return codes;
}
template <bool kWide>
inline Ints dot(Ints sum, Ints codes, Ints activations) {
  Ints pairs;
  if constexpr (kWide)
    pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(activations, codes));
  else
    pairs = _mm256_maddubs_epi16(codes, activations);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

inline void store_row(const StripTarget& t, int64_t column, int m, Floats sum) {
  float wide[kRegisterRows];
  _mm256_storeu_ps(wide, sum);
  const int64_t left = t.columns - column;
  for (int i = 0; i < kRegisterRows && i < left; ++i) {
    float value = wide[i];
    if (t.scale != nullptr) value *= t.scale[column + i];
    if (t.bias != nullptr) value += t.bias[column + i];
    if (t.residual != nullptr) value += t.residual[m * t.residual_stride + column + i];
    t.out[m * t.out_stride + column + i] = value;
  }
}

#include "kernels/linear/int8_strips_impl.h"

template <StripFormat F>
void strips_of_tile(const StripArgs& a) {
  switch (a.tile) {
    case 1: return strips<F, 1>(a);
    case 2: return strips<F, 2>(a);
    case 4: return strips<F, 4>(a);
    default: __builtin_trap();
  }
}

inline uint32_t largest_of(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}
inline int sum_of(__m256i v) {
  __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

constexpr bool kCodesRaw = true;  // zeros are subtracted through the sums of x
template <StripFormat F, int B, bool kHigh>
inline Floats float_codes(Ints w) {
  const Ints moved = _mm256_srli_epi32(w, 8 * B + (kHigh ? 4 : 0));
  return to_floats(_mm256_and_si256(moved, _mm256_set1_epi32(F.code_bits == 8 ? 255 : 15)));
}
#include "kernels/linear/exact_strips_impl.h"

}  // namespace

void exact_strips(const ExactStripArgs& args) { exact_of_kind(args); }

void int8_strips(const StripArgs& args) {
  with_format(args.kind, [&]<StripFormat F>() { strips_of_tile<F>(args); });
}

void decode_strip(const StripArgs& args, float* out) {
  with_format(args.kind, [&]<StripFormat F>() { decode<F>(args, out); });
}

// The same bits as round_group_int8.
void int8_panel(const Int8PanelArgs& a) {
  const int64_t record = int8_record_bytes(a.tile, a.parts);
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  uint8_t* at = a.panel;
  for (int64_t g = 0; g < a.groups; ++g, at += record) {
    __m256 x[4];
    __m256i largest_bits = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      x[i] = _mm256_loadu_ps(a.x + g * 32 + i * 8);
      largest_bits = _mm256_max_epu32(largest_bits, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
    }
    const uint32_t bits = largest_of(largest_bits);
    float largest;
    __builtin_memcpy(&largest, &bits, 4);
    const bool tiny = largest < 0x1p-120f;
    const bool finite = largest <= 3.4028235e38f;
    const __m256 inverse = _mm256_set1_ps(tiny ? 0.f : 127.f / largest);
    const float scale = tiny ? 0.f : finite ? largest / 127.f : largest;
    __m256i q[4];
    for (int i = 0; i < 4; ++i) q[i] = finite ? _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse)) : _mm256_set1_epi32(1);
    // Packing works within 128-bit halves; the permutation puts the dwords in order.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + a.token * 32), _mm256_permutevar8x32_epi32(bytes, order));
    auto* scales = reinterpret_cast<float*>(at + a.tile * 32);
    scales[a.token] = scale;
    const __m256i low = _mm256_add_epi32(q[0], q[1]), high = _mm256_add_epi32(q[2], q[3]);
    for (int p = 0; p < a.parts; ++p) {
      const int sum = sum_of(a.parts == 1 ? _mm256_add_epi32(low, high) : p == 0 ? low : high);
      void* correction = scales + a.tile + p * a.tile + a.token;
      if (a.minimum) {
        const float scaled = scale * static_cast<float>(sum);
        __builtin_memcpy(correction, &scaled, 4);
      } else {
        const int zero = -a.zero * sum;
        __builtin_memcpy(correction, &zero, 4);
      }
    }
  }
}

}  // namespace bolide::avx2
