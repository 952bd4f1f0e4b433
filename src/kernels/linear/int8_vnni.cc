// Block-quantised weights times int8 activations with VNNI: vpdpbusd sums four u8 x s8 products into each of 16 rows.
//
// Tiling: one strip (16 rows) by up to 12 tokens; their f32 sums and int32 group sums stay in registers, a group's
// codes are unpacked once for all tokens. Per group of 32 and token: 8 vpdpbusd, a conversion, a multiplication, an
// FMA, so at most 80 % of VNNI's peak. One token: bound by the stream of weights, which is prefetched. Integer sums are
// exact and f32 sums run over groups in order, so an output's bits do not depend on the tile.
#include <immintrin.h>

#include "kernels/linear/int8_kernels.h"

namespace bolide::vnni {
namespace {

constexpr int64_t kPrefetchBytes = 4096;

inline __m512i broadcast32(const void* p) { return _mm512_set1_epi32(*static_cast<const int*>(p)); }
inline __m512 broadcast_float(const void* p) { return _mm512_set1_ps(*static_cast<const float*>(p)); }
inline __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m512i load_bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m512i load_signed_bytes(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

struct Strip {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* minima;
  const uint8_t* super;
};

// Scale of the 16 rows in part p of group g.
template <StripFormat F>
inline __m512 scale_of(const Strip& s, int64_t g, int p) {
  const int64_t i = g * F.parts + p;
  if constexpr (F.scale == StripScale::kHalf) return load_halves(s.scales + i * 32);
  const __m512 block = load_halves(s.super + g / 8 * (F.minimum ? 64 : 32));
  const __m512i small =
      F.scale == StripScale::kSigned ? load_signed_bytes(s.scales + i * 16) : load_bytes(s.scales + i * 16);
  return _mm512_mul_ps(block, _mm512_cvtepi32_ps(small));
}

// What is added for each unit of the part's activation sum.
template <StripFormat F>
inline __m512 minimum_of(const Strip& s, int64_t g, int p) {
  const int64_t i = g * F.parts + p;
  if constexpr (F.scale == StripScale::kHalf) return load_halves(s.minima + i * 32);
  const __m512 block = load_halves(s.super + g / 8 * 64 + 32);
  const __m512 product = _mm512_mul_ps(block, _mm512_cvtepi32_ps(load_bytes(s.minima + i * 16)));
  return _mm512_xor_ps(product, _mm512_set1_ps(-0.f));
}

template <StripFormat F>
inline __m512i low_codes(__m512i w) {
  const __m512i code = _mm512_and_si512(w, _mm512_set1_epi8(15));
  if constexpr (!F.table) return code;
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_setr_epi8(BOLIDE_IQ4_TABLE)), code);
}
template <StripFormat F>
inline __m512i high_codes(__m512i w) {
  return low_codes<F>(_mm512_srli_epi16(w, 4));
}

// tokens rows of f32 sums to their place.
template <int M>
inline void finish(const __m512 (&acc)[M], const StripTarget& t, int64_t column) {
  const int64_t left = t.columns - column;
  const __mmask16 mask = left >= kStripRows ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
  const __m512 bias = t.bias != nullptr ? _mm512_maskz_loadu_ps(mask, t.bias + column) : _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    if (m >= t.tokens) return;
    __m512 sum = _mm512_add_ps(acc[m], bias);
    if (t.residual != nullptr)
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, t.residual + m * t.residual_stride + column));
    _mm512_mask_storeu_ps(t.out + m * t.out_stride + column, mask, sum);
  }
}

template <StripFormat F, int M>
inline void one_strip(const Strip& s, int64_t groups, const uint8_t* panel, __m512 (&acc)[M]) {
  constexpr int64_t kRecord = int64_t{M} * (32 + 4 + 4 * F.parts);
  constexpr int kGroupBytes = F.code_bits == 8 ? 512 : 256;
  for (int64_t g = 0; g < groups; ++g, panel += kRecord) {
    const uint8_t* codes = s.codes + g * kGroupBytes;
    const uint8_t* scales = panel + M * 32;
    if constexpr (M <= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < kGroupBytes; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(codes + kPrefetchBytes + i), _MM_HINT_T0);
    }
#pragma GCC unroll 2
    for (int p = 0; p < F.parts; ++p) {
      const uint8_t* corrections = scales + M * 4 + p * M * 4;
      __m512i sum[M];
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) sum[m] = F.minimum ? _mm512_setzero_si512() : broadcast32(corrections + m * 4);
      if constexpr (F.code_bits == 8) {
        constexpr int kLines = 8 / F.parts;
#pragma GCC unroll 8
        for (int j = 0; j < kLines; ++j) {
          const __m512i w = _mm512_loadu_si512(codes + (p * kLines + j) * 64);
#pragma GCC unroll 16
          for (int m = 0; m < M; ++m)
            sum[m] = _mm512_dpbusd_epi32(sum[m], w, broadcast32(panel + m * 32 + (p * kLines + j) * 4));
        }
      } else {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const __m512i w = _mm512_loadu_si512(codes + j * 64);
          if (F.parts == 1 || p == 0) {
            const __m512i low = low_codes<F>(w);
#pragma GCC unroll 16
            for (int m = 0; m < M; ++m) sum[m] = _mm512_dpbusd_epi32(sum[m], low, broadcast32(panel + m * 32 + j * 4));
          }
          if (F.parts == 1 || p == 1) {
            const __m512i high = high_codes<F>(w);
#pragma GCC unroll 16
            for (int m = 0; m < M; ++m)
              sum[m] = _mm512_dpbusd_epi32(sum[m], high, broadcast32(panel + m * 32 + 16 + j * 4));
          }
        }
      }
      const __m512 scale = scale_of<F>(s, g, p);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
        acc[m] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[m]), _mm512_mul_ps(scale, broadcast_float(scales + m * 4)), acc[m]);
      if constexpr (F.minimum) {
        const __m512 minimum = minimum_of<F>(s, g, p);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m] = _mm512_fmadd_ps(minimum, broadcast_float(corrections + m * 4), acc[m]);
      }
    }
  }
}

template <StripFormat F, int M>
void strips(const StripArgs& a) {
  for (int64_t i = 0; i < a.strips; ++i) {
    const uint8_t* base = a.weights + static_cast<size_t>(i) * a.shape.bytes;
    const Strip strip{base, base + a.shape.scales, base + a.shape.minima, base + a.shape.super};
    __m512 acc[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
    one_strip<F, M>(strip, a.shape.groups, a.panel, acc);
    finish<M>(acc, a.target, i * kStripRows);
  }
}

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

template <StripFormat F>
void decode(const StripArgs& a, float* out) {
  const uint8_t* base = a.weights;
  const Strip s{base, base + a.shape.scales, base + a.shape.minima, base + a.shape.super};
  const __m512i byte = _mm512_set1_epi32(255);
  const __m512 zero = _mm512_set1_ps(static_cast<float>(a.zero));
  for (int64_t g = 0; g < a.shape.groups; ++g) {
    for (int j = 0; j < 8; ++j, out += 64) {
      __m512i codes;
      if constexpr (F.code_bits == 8) {
        codes = _mm512_loadu_si512(s.codes + g * 512 + j * 64);
      } else {
        const __m512i w = _mm512_loadu_si512(s.codes + g * 256 + j % 4 * 64);
        codes = j < 4 ? low_codes<F>(w) : high_codes<F>(w);
      }
      const int p = F.parts == 2 ? j / 4 : 0;
      const __m512 scale = scale_of<F>(s, g, p);
      const __m512 minimum = F.minimum ? minimum_of<F>(s, g, p) : _mm512_setzero_ps();
      for (int b = 0; b < 4; ++b, codes = _mm512_srli_epi32(codes, 8)) {
        const __m512 code = _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_and_si512(codes, byte)), zero);
        _mm512_storeu_ps(out + b * 16, _mm512_fmadd_ps(code, scale, minimum));
      }
    }
  }
}

// Lists every kind once.
template <class Visit>
inline void with_format(int kind, Visit visit) {
  switch (kind) {
#define BOLIDE_KIND(K) \
  case K: return visit.template operator()<strip_format(K)>();
    BOLIDE_KIND(kStrip4Half)
    BOLIDE_KIND(kStrip4HalfMin)
    BOLIDE_KIND(kStripTableHalf)
    BOLIDE_KIND(kStrip8Half)
    BOLIDE_KIND(kStrip8HalfMin)
    BOLIDE_KIND(kStrip4Super)
    BOLIDE_KIND(kStrip8Super)
    BOLIDE_KIND(kStripTableSuper)
    BOLIDE_KIND(kStrip8SuperBy16)
    BOLIDE_KIND(kStrip4SuperMinBy16)
    BOLIDE_KIND(kStrip4SuperBy16)
#undef BOLIDE_KIND
    default: __builtin_trap();
  }
}

inline uint32_t largest_lane(__m512i v) { return _mm512_reduce_max_epu32(v); }

}  // namespace

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
    const uint32_t largest_bits = largest_lane(_mm512_max_epu32(m0, m1));
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
