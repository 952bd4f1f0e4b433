// x of streaming products (gemv_cuda.cuh): a warp's own windows into shared memory.
#pragma once

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

// A warp's windows of x into shared memory, times the gain if there is one. A lane holds up to 8 pieces of 16 bytes: of
// one token, or 4 of each of two. f16 is scaled by a power of two that brings the largest near 2^13; `factors` are what
// undoes it, `squares` the sums of squares of the warp's x.
template <class Format, bool kNorm>
struct GemvShareX {
  using X = typename Format::X;
  static constexpr bool kHalf = std::is_same_v<X, __half>;
  static constexpr int kPiece = kNorm ? 4 : 8, kPerWindow = Format::kWindow / kPiece;

  static constexpr int kStep = kGemvWarps * kWarp * kPiece;  // columns from a lane's piece to its next
  static_assert(kWarp % kPerWindow == 0);

  const GemvArgs& a;
  int lane, first;  // column
  bool paired;

  __device__ __forceinline__ GemvShareX(const GemvArgs& args, int warp, int the_lane)
      : a(args),
        lane(the_lane),
        first((lane / kPerWindow * kGemvWarps + warp) * Format::kWindow + lane % kPerWindow * kPiece),
        paired(a.k <= 4 * kStep) {
    if constexpr (kNorm) {  // no kernel writes the gain
#pragma unroll 1
      for (int k = first; k < a.k; k += kStep) asm volatile("prefetch.global.L2 [%0];" ::"l"(a.gain + k));
    }
  }

  __device__ __forceinline__ void run(X* there, float* squares, float* factors) const {
    const int pitch = gemv_x_pitch<Format>(a.k), columns = pitch - Format::kXPad;
    const int rounds = paired ? 1 : (columns + 8 * kStep - 1) / (8 * kStep), total = rounds == 1 ? 1 : 2 * rounds;
    using From = std::conditional_t<kNorm, float, __nv_bfloat16>;
#pragma unroll 1
    for (int token = 0; token < a.tokens; token += paired ? 2 : 1) {
      float square[2] = {}, most[2] = {}, scale[2] = {1, 1};
#pragma unroll 1
      for (int it = 0; it < total; ++it) {
        // The second four pieces: of the next token, or the next of this one.
        const int begin = first + (it < rounds ? it : it - rounds) * 8 * kStep,
                  second = begin + (paired ? 0 : 4 * kStep);
        const bool has_second = !paired || token + 1 < a.tokens;
        const From* const x = static_cast<const From*>(a.x) + token * a.x_stride + begin;
        const From* const x_second = paired ? x + a.x_stride : x + 4 * kStep;
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          v[i] = {};
          if (i < 4 ? begin + i * kStep < a.k : has_second && second + (i - 4) * kStep < a.k)
            v[i] = __ldcg(reinterpret_cast<const uint4*>((i < 4 ? x : x_second) + i % 4 * kStep));
        }
        if constexpr (kNorm || kHalf) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            uint32_t* const w = &v[i].x;
            if constexpr (kNorm) {
              const int k = (i < 4 ? begin : second) + i % 4 * kStep;
              const float4 factor = k < a.k ? __ldg(reinterpret_cast<const float4*>(a.gain + k)) : float4{};
              const float* const by = &factor.x;
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float one = __uint_as_float(w[e]);
                square[i / 4] = fmaf(one, one, square[i / 4]);
                w[e] = __float_as_uint(one * by[e]);
                if constexpr (kHalf) most[i / 4] = fmaxf(most[i / 4], fabsf(one * by[e]));
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
                if (lane == 0) squares[token + i] = sum;
              }
              if constexpr (kHalf) {
                const uint32_t largest = __reduce_max_sync(0xffffffffu, __float_as_uint(most[i]));
                const uint32_t exponent = min(max(largest >> 23, 16u), 250u);
                scale[i] = __uint_as_float((267u - exponent) << 23);
                if (lane == 0) factors[token + i] = __uint_as_float((exponent - 13u) << 23) * Format::kSumScale;
              }
            }
            if (!paired) scale[1] = scale[0];
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
          if constexpr (kNorm) {
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
