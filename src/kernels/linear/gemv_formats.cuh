// Formats of weights as the streaming products (gemv_cuda.cuh) multiply them.
#pragma once

#include <type_traits>

#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda {

// c += a b of m16n8k16.
template <class T>
__device__ __forceinline__ void multiply_tile(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                              uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ uint32_t bits_of(__half2 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }
__device__ __forceinline__ __half2 halves_of(uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// kWindow columns are 64 bytes of a row: 16 for each of four threads, which are kChunks pieces of 8 neighbouring k,
// piece j at chunk_k(j, t). X: what weights and x are multiplied as; codes are multiplied as f16, which holds them
// exactly, and x is then scaled by a power of two. kOddScale: the factor that the multiplication wants on elements 2
// and 3 of every 4 of x. kSumScale: the factor on its sums. kConstantBytes: constants of eight windows of a row, a
// multiple of 16, of which a warp loads what its window wants. kXPad: elements between two tokens' x in shared memory,
// beyond whole windows, that keep a warp's reads in different banks.
struct GemvNoConstants {
  __device__ __forceinline__ void read(const uint8_t*, int, int) {}
};
struct GemvBF16 {
  using X = __nv_bfloat16;
  static constexpr int kWindow = 32, kChunks = 1, kConstantBytes = 0, kBits = 16, kXPad = 32;
  static constexpr bool kChains = true, kRounds = false;
  using Constants = GemvNoConstants;
  static constexpr float kOddScale = 1, kSumScale = 1;
  template <int kTokenTiles>
  struct Sums {};  // of x
  static __device__ __forceinline__ int chunk_k(int, int t) { return 8 * t; }

  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>&, const uint32_t (&)[kTokenTiles][4 * kChunks]) {}
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants&, const Constants&,
                                                  const uint32_t (&x)[kTokenTiles][4 * kChunks],
                                                  const Sums<kTokenTiles>&) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      multiply_tile<X>(c[n], a.x, b.x, a.y, b.y, x[n][0], x[n][1]);
      multiply_tile<X>(c[n], a.z, b.z, a.w, b.w, x[n][2], x[n][3]);
    }
  }
};

// Four codes of a word to two pairs of f16.
struct DecodeF8E4M3 {
  // Exponent and mantissa where f16 has them are the value times 2^-8, subnormal or not.
  static __device__ __forceinline__ uint32_t shifted(uint32_t codes, uint32_t selector) {
    const uint32_t spread = __byte_perm(codes, 0, selector);
    return bits_of(__hmul2(halves_of((spread & 0x80008000u) | ((spread >> 1) & 0x3f803f80u)), __float2half2_rn(256.f)));
  }
  static __device__ __forceinline__ void word(uint32_t codes, uint32_t* low, uint32_t* high) {
    NV_IF_ELSE_TARGET(
        NV_PROVIDES_SM_89,
        (asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }" : "=r"(
                 *low),
             "=r"(*high) : "r"(codes));),
        (*low = shifted(codes, 0x1404); *high = shifted(codes, 0x3424);))
  }
};
struct DecodeInt8 {
  // The code + 128 in the mantissa of 1024.
  static __device__ __forceinline__ void word(uint32_t codes, uint32_t* low, uint32_t* high) {
    const uint32_t unsigned_codes = codes ^ 0x80808080u;
    const __half2 offset = __float2half2_rn(1152.f);
    *low = bits_of(__hsub2(halves_of(__byte_perm(unsigned_codes, 0x64646464u, 0x4140)), offset));
    *high = bits_of(__hsub2(halves_of(__byte_perm(unsigned_codes, 0x64646464u, 0x4342)), offset));
  }
};

template <class Decode>
struct GemvBytes {
  using X = __half;
  static constexpr int kWindow = 64, kChunks = 2, kConstantBytes = 0, kBits = 8, kXPad = 8;
  static constexpr bool kChains = std::is_same_v<Decode, DecodeF8E4M3>, kRounds = kChains;
  using Constants = GemvNoConstants;
  static constexpr float kOddScale = 1, kSumScale = 1;
  template <int kTokenTiles>
  struct Sums {};
  static __device__ __forceinline__ int chunk_k(int j, int t) { return 16 * t + 8 * j; }

  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>&, const uint32_t (&)[kTokenTiles][4 * kChunks]) {}
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants&, const Constants&,
                                                  const uint32_t (&x)[kTokenTiles][4 * kChunks],
                                                  const Sums<kTokenTiles>&) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint32_t a0, a1, a2, a3;
      Decode::word(word_of(a, s), &a0, &a2);
      Decode::word(word_of(b, s), &a1, &a3);
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) multiply_tile<X>(c[n], a0, a1, a2, a3, x[n][2 * s], x[n][2 * s + 1]);
    }
  }
};

// gemv_layout.h: word j of a piece has 8 codes of k = 32 j + 8 t .. + 7 in the order 0 2 4 6 1 3 5 7; a group's
// constants are a f16 scale, a u8 zero point and a byte of 0. Codes are multiplied as the subnormal f16 that they are
// in place: times 2^-24, or 2^-20 where they lie 4 bits further up. The zero point meets the sum of x instead.
template <int kGroup>
struct GemvW4 {
  using X = __half;
  static constexpr int kWindow = 128, kChunks = 4, kGroups = 128 / kGroup, kBits = 4, kXPad = 32;
  static constexpr bool kChains = kGroup == 128, kRounds = false;
  static constexpr int kConstantBytes = 32 * kGroups;
  struct Constants {
    uint32_t group[kGroups];
    __device__ __forceinline__ void read(const uint8_t* row, int window, int) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) group[i] = load<uint32_t>(row + (window * kGroups + i) * 4);
    }
  };
  static constexpr int kPerGroup = 4 / kGroups;  // words
  static constexpr float kOddScale = 0x1p-4f, kSumScale = 0x1p24f;
  template <int kTokenTiles>
  struct Sums {
    float of[kGroups][kTokenTiles][2];
  };
  static __device__ __forceinline__ int chunk_k(int j, int t) { return 32 * j + 8 * t; }

  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>& sums, const uint32_t (&x)[kTokenTiles][4 * kChunks]) {
    constexpr uint32_t kOnes = 0x3c003c00u, kSixteens = 0x4c004c00u;
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        float sum[4] = {};
#pragma unroll
        for (int i = group * kPerGroup * 2; i < (group + 1) * kPerGroup * 2; ++i)
          multiply_tile<X>(sum, kOnes, kOnes, kSixteens, kSixteens, x[n][2 * i], x[n][2 * i + 1]);
        sums.of[group][n][0] = sum[0], sums.of[group][n][1] = sum[1];
      }
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants& ga, const Constants& gb,
                                                  const uint32_t (&x)[kTokenTiles][4 * kChunks],
                                                  const Sums<kTokenTiles>& sums) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      float sum[kTokenTiles][4] = {};
#pragma unroll
      for (int j = group * kPerGroup; j < (group + 1) * kPerGroup; ++j)
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const uint32_t va = word_of(a, j) >> (8 * s), vb = word_of(b, j) >> (8 * s);
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n)
            multiply_tile<X>(sum[n], va & 0x000f000fu, vb & 0x000f000fu, va & 0x00f000f0u, vb & 0x00f000f0u,
                             x[n][4 * j + 2 * s], x[n][4 * j + 2 * s + 1]);
        }
      const float2 fa = __half22float2(halves_of(ga.group[group])), fb = __half22float2(halves_of(gb.group[group]));
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const float x0 = sums.of[group][n][0], x1 = sums.of[group][n][1];
        c[n][0] = fmaf(fa.x, fmaf(-fa.y, x0, sum[n][0]), c[n][0]);
        c[n][1] = fmaf(fa.x, fmaf(-fa.y, x1, sum[n][1]), c[n][1]);
        c[n][2] = fmaf(fb.x, fmaf(-fb.y, x0, sum[n][2]), c[n][2]);
        c[n][3] = fmaf(fb.x, fmaf(-fb.y, x1, sum[n][3]), c[n][3]);
      }
    }
  }
};

// Elements from a token's x in shared memory to the next one's.
template <class Format>
__host__ __device__ constexpr int gemv_x_pitch(int k) {
  return (k + Format::kWindow - 1) / Format::kWindow * Format::kWindow + Format::kXPad;
}

}  // namespace bolide::cuda
