// x of streaming products (gemv_cuda.cuh): a warp's own windows into shared memory.
#pragma once

#include "kernels/linear/f8_round.cuh"
#include "kernels/linear/gemv_finish.cuh"
#include "kernels/linear/gemv_formats.cuh"

namespace bolide::cuda {

inline constexpr int kGemvWarps = 8;  // that multiply

// What bf16 x is scaled by where it is multiplied as f16 and its size is not known; beyond it is clamped.
template <class Format>
inline constexpr float kGemvF16Scale = Format::kOddScale < 1 ? 0x1p-2f : 0x1p-4f;

__device__ __forceinline__ uint32_t gemv_f16_pair(uint32_t bf16_pair, float scale) {
  constexpr float kMost = 65504.f;
  const float low = __uint_as_float(bf16_pair << 16) * scale;
  const float high = __uint_as_float(bf16_pair & 0xffff0000u) * scale;
  return bits_of(__floats2half2_rn(fminf(fmaxf(low, -kMost), kMost), fminf(fmaxf(high, -kMost), kMost)));
}
template <class X>
__device__ __forceinline__ uint32_t gemv_pair(float low, float high) {
  if constexpr (std::is_same_v<X, __half>) {
    return bits_of(__floats2half2_rn(low, high));
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// Two numbers to codes of f8e4m3, times a power of two that leaves them exact.
template <class X>
__device__ __forceinline__ uint32_t gemv_code_pair(float low, float high, float by) {
  if constexpr (std::is_same_v<X, __half>) {
    uint32_t pair;
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_89,
                      (asm("{ .reg .b16 codes; cvt.rn.satfinite.e4m3x2.f32 codes, %1, %2; cvt.rn.f16x2.e4m3x2 %0, "
                           "codes; }" : "=r"(pair) : "f"(high),
                           "f"(low));
                       pair = bits_of(__hmul2(halves_of(pair), __float2half2_rn(by)));),
                      (pair = gemv_pair<X>(through_f8e4m3(low) * by, through_f8e4m3(high) * by);))
    return pair;
  } else {
    return gemv_pair<X>(through_f8e4m3(low), through_f8e4m3(high));
  }
}

// x / y, rounded to nearest, given 1 / y rounded so (Markstein 1990), for quotients that are no smaller than a code.
__device__ __forceinline__ float gemv_divide(float x, float y, float inverse) {
  const float near = x * inverse;
  return fmaf(fmaf(-near, y, x), inverse, near);
}

// What warps that prepare x share: [kGemvWarps][kGemvTokensMax] each. A warp reads factors that it wrote itself.
struct GemvXSums {
  float *squares, *largest, *factors;
};

// A warp's windows of x into shared memory, times the gain if there is one. A lane holds up to 8 pieces of 16 bytes: of
// one token, or 4 of each of two. f16 is scaled by a power of two that brings the largest near 2^13; `factors` are what
// undoes it, `squares` the sums of squares of the warp's x. What is rounded is normalised first and becomes codes,
// whose scale is the factor: as quantise_rows does it, but for the order in which norm and gain are multiplied.
template <class Format, bool kNorm, bool kAhead>
struct GemvShareX {
  using X = typename Format::X;
  static constexpr bool kHalf = std::is_same_v<X, __half>;
  // Code that is there costs time though it does not run: instructions are cold at each launch.
  static constexpr bool kRounds = Format::kRounds, kWantsMost = kHalf || kRounds;
  static constexpr int kPiece = kNorm ? 4 : 8, kPerWindow = Format::kWindow / kPiece;

  static constexpr int kStep = kGemvWarps * kWarp * kPiece;  // columns from a lane's piece to its next
  static_assert(kWarp % kPerWindow == 0);

  const GemvArgs& a;
  int warp, lane, first;  // column
  bool paired;
  float4 gain[kNorm && kAhead ? 4 : 1];  // kAhead: of the first pieces, read before x is there

  __device__ __forceinline__ GemvShareX(const GemvArgs& args, int the_warp, int the_lane)
      : a(args),
        warp(the_warp),
        lane(the_lane),
        first((lane / kPerWindow * kGemvWarps + warp) * Format::kWindow + lane % kPerWindow * kPiece),
        paired(a.k <= 4 * kStep) {
    if constexpr (kNorm) {  // no kernel writes the gain
#pragma unroll
      for (int i = 0; kAhead && i < 4; ++i) {
        gain[i] = {};
        if (first + i * kStep < a.k) gain[i] = __ldg(reinterpret_cast<const float4*>(a.gain + first + i * kStep));
      }
#pragma unroll 1
      for (int k = first + (kAhead ? 4 * kStep : 0); k < a.k; k += kStep)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.gain + k));
    }
  }

  // Of a token, what all warps found of it.
  struct Rounding {
    float norm = 1, scale = 1, inverse = 1;
  };
  __device__ __forceinline__ Rounding rounding(const GemvXSums& sums, int token) const {
    Rounding r;
    float squares = 0;
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kGemvWarps; ++i) {
      if constexpr (kNorm) squares += sums.squares[i * kGemvTokensMax + token];
      largest = max(largest, __float_as_uint(sums.largest[i * kGemvTokensMax + token]));
    }
    if constexpr (kNorm) r.norm = 1.f / sqrtf(squares / static_cast<float>(a.k) + a.eps);
    const float wanted = __fdiv_rn(__uint_as_float(largest) * r.norm, 448.f);
    r.scale = wanted > 0x1p-23f || isnan(wanted) ? wanted : 0x1p-23f;
    r.inverse = __frcp_rn(r.scale);
    return r;
  }

  __device__ __forceinline__ void run(X* there, const GemvXSums& sums) const {
    const int pitch = gemv_x_pitch<Format>(a.k), columns = pitch - Format::kXPad;
    const int rounds = paired ? 1 : (columns + 8 * kStep - 1) / (8 * kStep), total = rounds == 1 ? 1 : 2 * rounds;
    const int mine = warp * kGemvTokensMax;
    using From = std::conditional_t<kNorm, float, __nv_bfloat16>;
    const bool rounding_wanted = kRounds && a.rounds;
#pragma unroll 1
    for (int token = 0; token < a.tokens; token += paired ? 2 : 1) {
      float square[2] = {}, most[2] = {}, scale[2] = {1, 1};
      Rounding r[2];
#pragma unroll 1
      for (int it = 0; it < total; ++it) {
        // The second four pieces: of the next token, or the next of this one.
        const int begin = first + (it < rounds ? it : it - rounds) * 8 * kStep,
                  second = begin + (paired ? 0 : 4 * kStep);
        const bool has_second = !paired || token + 1 < a.tokens;
        const From* const x = static_cast<const From*>(a.x) + token * a.x_stride + begin;
        const From* const x_second = paired ? x + a.x_stride : x + 4 * kStep;
        const bool one_token = paired && !has_second;  // then the second four pieces are nothing
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          v[i] = {};
          if (i >= 4 && one_token) continue;
          if (i < 4 ? begin + i * kStep < a.k : has_second && second + (i - 4) * kStep < a.k)
            v[i] = __ldcg(reinterpret_cast<const uint4*>((i < 4 ? x : x_second) + i % 4 * kStep));
        }
        if constexpr (kNorm || kWantsMost) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            if (i >= 4 && one_token) continue;
            uint32_t* const w = &v[i].x;
            if constexpr (kNorm) {
              const int k = (i < 4 ? begin : second) + i % 4 * kStep;
              float4 factor;
              if (kAhead && (paired || (i < 4 && begin == first))) {
                factor = gain[kAhead ? i % 4 : 0];
              } else {
                factor = {};
                if (k < a.k) factor = __ldg(reinterpret_cast<const float4*>(a.gain + k));
              }
              const float* const by = &factor.x;
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float one = __uint_as_float(w[e]);
                square[i / 4] = fmaf(one, one, square[i / 4]);
                w[e] = __float_as_uint(one * by[e]);
                if constexpr (kWantsMost) most[i / 4] = fmaxf(most[i / 4], fabsf(one * by[e]));
              }
            } else {
#pragma unroll
              for (int e = 0; e < 4; ++e)
                most[i / 4] = fmaxf(
                    most[i / 4], fmaxf(fabsf(__uint_as_float(w[e] << 16)), fabsf(__uint_as_float(w[e] & 0xffff0000u))));
            }
          }
          if (it == rounds - 1) {
            if (!paired) square[0] += square[1], most[0] = fmaxf(most[0], most[1]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              if (i == 1 && (!paired || !has_second)) break;
              if constexpr (kNorm) {
                const float sum = warp_sum(square[i]);
                if (lane == 0) sums.squares[mine + token + i] = sum;
              }
              if constexpr (kWantsMost) {
                const uint32_t largest = __reduce_max_sync(0xffffffffu, __float_as_uint(most[i]));
                if (rounding_wanted) {
                  if (lane == 0) sums.largest[mine + token + i] = __uint_as_float(largest);
                } else if constexpr (kHalf) {
                  const uint32_t exponent = min(max(largest >> 23, 16u), 250u);
                  scale[i] = __uint_as_float((267u - exponent) << 23);
                  if (lane == 0)
                    sums.factors[mine + token + i] = __uint_as_float((exponent - 13u) << 23) * Format::kSumScale;
                }
              }
            }
            if (rounding_wanted) {
              asm volatile("bar.sync 5, %0;" ::"n"(kGemvWarps * kWarp) : "memory");
#pragma unroll
              for (int i = 0; i < 2; ++i) {
                if (i == 1 && (!paired || !has_second)) break;
                r[i] = rounding(sums, token + i);
                if (lane == 0) sums.factors[mine + token + i] = r[i].scale * Format::kSumScale;
              }
            }
            if (!paired) scale[1] = scale[0], r[1] = r[0];
          }
        }
        if (total > 1 && it < rounds) continue;
        X* const place = there + token * pitch + begin;
        X* const place_second = paired ? place + pitch : place + 4 * kStep;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (i < 4 ? begin + i * kStep >= columns : !has_second || second + (i - 4) * kStep >= columns) continue;
          X* const to = (i < 4 ? place : place_second) + i % 4 * kStep;
          const float one = scale[i / 4], two = one * Format::kOddScale;
          if (rounding_wanted) {
            const Rounding& by = r[i / 4];
            const auto f = [&](int pair) {
              const uint32_t* const w = &v[i].x;
              float low, high;
              if constexpr (kNorm) {
                low = __uint_as_float(w[2 * pair % 4]) * by.norm, high = __uint_as_float(w[2 * pair % 4 + 1]) * by.norm;
              } else {
                low = __uint_as_float(w[pair] << 16), high = __uint_as_float(w[pair] & 0xffff0000u);
              }
              return gemv_code_pair<X>(gemv_divide(low, by.scale, by.inverse), gemv_divide(high, by.scale, by.inverse),
                                       pair % 2 == 0 ? 1.f : Format::kOddScale);
            };
            if constexpr (kNorm) {
              store(to, uint2{f(0), f(1)});
            } else {
              store(to, uint4{f(0), f(1), f(2), f(3)});
            }
          } else if constexpr (kNorm) {
            const auto f = [&](uint32_t bits) { return __uint_as_float(bits); };
            store(to, uint2{gemv_pair<X>(f(v[i].x) * one, f(v[i].y) * one),
                            gemv_pair<X>(f(v[i].z) * two, f(v[i].w) * two)});
          } else if constexpr (kHalf) {
            const auto f = [&](uint32_t w, float by) {
              return gemv_pair<X>(__uint_as_float(w << 16) * by, __uint_as_float(w & 0xffff0000u) * by);
            };
            store(to, uint4{f(v[i].x, one), f(v[i].y, two), f(v[i].z, one), f(v[i].w, two)});
          } else {
            store(to, v[i]);
          }
        }
      }
    }
    __syncwarp();
  }
};

}  // namespace bolide::cuda
