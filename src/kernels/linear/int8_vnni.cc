// Block-quantised weights times int8 activations with VNNI: vpdpbusd sums four u8 x s8 products into each of 16 rows.
// Tiling and bounds: int8_strips_impl.h.
#include <immintrin.h>

#include "kernels/linear/int8_kernels.h"

namespace bolide::vnni {
namespace {

#include "kernels/linear/int8_avx512_ops.h"
#include "kernels/linear/int8_strips_impl.h"

template <StripFormat F>
void strips_of_tile(const StripArgs& a) {
  switch (a.tile) {
    case 1: return strips<F, 1>(a);
    case 2: return strips<F, 2>(a);
    case 3: return strips<F, 3>(a);
    case 4: return strips<F, 4>(a);
    case 6: return strips<F, 6>(a);
    case 8: return strips<F, 8>(a);
    case 12: return strips<F, 12>(a);
    default: __builtin_trap();
  }
}

// Codes less the scheme's zero where that is 8; vpermps reads the low 4 bits of each lane alone.
constexpr bool kCodesRaw = false;
template <StripFormat F, int B, bool kHigh>
inline Floats float_codes(Ints w) {
  const Ints moved = _mm512_srli_epi32(w, 8 * B + (kHigh ? 4 : 0));
  if constexpr (F.code_bits == 8) return to_floats(_mm512_and_si512(moved, _mm512_set1_epi32(255)));
  const float zero = F.minimum ? 0.f : 8.f;
  const __m512 table =
      _mm512_sub_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_ps(zero));
  return _mm512_permutexvar_ps(moved, table);
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
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  uint8_t* at = a.panel;
  for (int64_t g = 0; g < a.groups; ++g, at += record) {
    const __m512 x0 = _mm512_loadu_ps(a.x + g * 32), x1 = _mm512_loadu_ps(a.x + g * 32 + 16);
    const __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
    const __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
    const uint32_t largest_bits = _mm512_reduce_max_epu32(_mm512_max_epu32(m0, m1));
    float largest;
    __builtin_memcpy(&largest, &largest_bits, 4);
    const bool tiny = largest < 0x1p-120f;
    const bool finite = largest <= 3.4028235e38f;
    const __m512 inverse = _mm512_set1_ps(tiny ? 0.f : 127.f / largest);
    const float scale = tiny ? 0.f : finite ? largest / 127.f : largest;
    __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse)), q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
    if (!finite) q0 = q1 = _mm512_set1_epi32(1);
    auto* codes = reinterpret_cast<__m128i*>(at + a.token * 32);
    _mm_storeu_si128(codes, _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128(codes + 1, _mm512_cvtepi32_epi8(q1));
    auto* scales = reinterpret_cast<float*>(at + a.tile * 32);
    scales[a.token] = scale;
    for (int p = 0; p < a.parts; ++p) {
      const __m512i part = a.parts == 1 ? _mm512_add_epi32(q0, q1) : p == 0 ? q0 : q1;
      const int sum = _mm512_reduce_add_epi32(part);
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

}  // namespace bolide::vnni
