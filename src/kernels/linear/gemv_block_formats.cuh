// GGUF's block schemes as streaming products multiply them: laid out by gemv_block_layout.h, tricks by
// gemv_formats.cuh. Codes are subnormal f16 where they lie (times 2^-24, or 2^-20 four bits further up), exact up to
// six bits. Scales and minima enter as float32 where a product is added, but for q6_k, whose codes times scales are
// f16.
#pragma once

#include "kernels/linear/gemv_block_layout.h"
#include "kernels/linear/gemv_formats.cuh"

namespace bolide::cuda {

// c += a b of m16n8k8.
__device__ __forceinline__ void multiply_half_tile(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// What formats with nibbles of 128 columns share.
struct GemvNibbles {
  using X = __half;
  static constexpr int kWindow = 128, kChunks = 4, kBits = 4, kXPad = 32;
  static constexpr bool kChains = false, kRounds = false;
  static constexpr float kOddScale = 0x1p-4f, kSumScale = 0x1p24f;
  static __device__ __forceinline__ int chunk_k(int j, int t) { return 32 * j + 8 * t; }

  // sums += codes of group j times x.
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply_group(float (&sums)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                        const uint32_t (&x)[kTokenTiles][16], int j) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t va = word_of(a, j) >> (8 * s), vb = word_of(b, j) >> (8 * s);
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
        multiply_tile<X>(sums[n], va & 0x000f000fu, vb & 0x000f000fu, va & 0x00f000f0u, vb & 0x00f000f0u,
                         x[n][4 * j + 2 * s], x[n][4 * j + 2 * s + 1]);
    }
  }
  // c += sums * scale of the row, which fa and fb are of.
  static __device__ __forceinline__ void add_scaled(float (&c)[4], const float (&sums)[4], float fa, float fb) {
    c[0] = fmaf(fa, sums[0], c[0]), c[1] = fmaf(fa, sums[1], c[1]);
    c[2] = fmaf(fb, sums[2], c[2]), c[3] = fmaf(fb, sums[3], c[3]);
  }
};

// Where groups have minima: sums of x over the four groups of a window, as the right side of a product with minima.
// A thread has those of groups 2 (t % 2) and the next, of token g: t < 2 rounded to f16, others what that leaves.
template <int kTokenTiles>
struct GemvGroupSums {
  uint32_t pair[kTokenTiles];
  // Sums stay in the range of f16; those of clamped x (gemv_x.cuh) are clamped as well.
  static constexpr float kDown = 0x1p-6f, kUp = 0x1p6f;

  __device__ __forceinline__ void sum(const uint32_t (&x)[kTokenTiles][16]) {
    // x as the left side, whose rows are tokens; column n of the right side is 1 for the columns of group n % 4.
    const int lane = static_cast<int>(threadIdx.x) % kWarp, mine = lane / 4 % 4;
    float halves[2][4] = {};  // added up at the end: shorter chains
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t ones = mine == j ? 0x3c003c00u : 0u, sixteens = mine == j ? 0x4c004c00u : 0u;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int i = 4 * j + 2 * s;
        constexpr int kSecond = kTokenTiles - 1;
        multiply_tile<__half>(halves[s], x[0][i], kSecond > 0 ? x[kSecond][i] : 0u, x[0][i + 1],
                              kSecond > 0 ? x[kSecond][i + 1] : 0u, ones, sixteens);
      }
    }
    const bool rest = lane % 4 >= 2;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const auto sum_of = [&](int column) {
        constexpr float kMost = 65504.f;
        const float sum = (halves[0][2 * n + column] + halves[1][2 * n + column]) * kDown;
        return fminf(fmaxf(sum, -kMost), kMost);  // where x is NaN, the codes' product is too
      };
      const float low = sum_of(0), high = sum_of(1);
      const __half2 rounded = __floats2half2_rn(low, high);
      const float2 back = __half22float2(rounded);
      pair[n] = rest ? bits_of(__floats2half2_rn(low - back.x, high - back.y)) : bits_of(rounded);
    }
  }
};

// value = d (code - 8): sums of codes begin at -8 times the sum of x.
struct GemvQ4_0 : GemvNibbles {
  static constexpr int kConstantBytes = block_pieces::kQ4_0;
  struct Constants {
    uint2 scales;
    __device__ __forceinline__ void read(const uint8_t* row, int window, int) {
      scales = load<uint2>(row + window * 8);
    }
  };
  template <int kTokenTiles>
  struct Sums {
    float of[4][kTokenTiles][2];
  };
  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>& sums, const uint32_t (&x)[kTokenTiles][16]) {
    constexpr uint32_t kMinusEights = 0x80088008u, kSixteenTimes = 0x80808080u;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        float sum[4] = {};
#pragma unroll
        for (int i = 4 * j; i < 4 * j + 4; i += 2)
          multiply_tile<X>(sum, kMinusEights, kMinusEights, kSixteenTimes, kSixteenTimes, x[n][i], x[n][i + 1]);
        sums.of[j][n][0] = sum[0], sums.of[j][n][1] = sum[1];
      }
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants& ga, const Constants& gb,
                                                  const uint32_t (&x)[kTokenTiles][16], const Sums<kTokenTiles>& sums) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float sum[kTokenTiles][4];
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[n][i] = sums.of[j][n][i % 2];
      multiply_group<kTokenTiles>(sum, a, b, x, j);
      const float2 fa = __half22float2(halves_of(j < 2 ? ga.scales.x : ga.scales.y)),
                   fb = __half22float2(halves_of(j < 2 ? gb.scales.x : gb.scales.y));
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
        add_scaled(c[n], sum[n], j % 2 == 0 ? fa.x : fa.y, j % 2 == 0 ? fb.x : fb.y);
    }
  }
};

// value = d code + m.
struct GemvQ4_1 : GemvNibbles {
  static constexpr int kConstantBytes = block_pieces::kQ4_1;
  struct Constants {
    uint4 groups;
    uint32_t minima;  // of the groups whose sums of x the thread has
    __device__ __forceinline__ void read(const uint8_t* row, int window, int t) {
      groups = load<uint4>(row + window * 16);
      minima = t % 2 == 0 ? __byte_perm(groups.x, groups.y, 0x7632) : __byte_perm(groups.z, groups.w, 0x7632);
    }
  };
  template <int kTokenTiles>
  using Sums = GemvGroupSums<kTokenTiles>;
  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>& sums, const uint32_t (&x)[kTokenTiles][16]) {
    sums.sum(x);
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants& ga, const Constants& gb,
                                                  const uint32_t (&x)[kTokenTiles][16], const Sums<kTokenTiles>& sums) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float sum[kTokenTiles][4] = {};
      multiply_group<kTokenTiles>(sum, a, b, x, j);
      const float fa = __low2float(halves_of(word_of(ga.groups, j))),
                  fb = __low2float(halves_of(word_of(gb.groups, j)));
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) add_scaled(c[n], sum[n], fa, fb);
    }
    constexpr float kScale = Sums<kTokenTiles>::kUp / kSumScale;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      float sum[4] = {};
      multiply_half_tile(sum, ga.minima, gb.minima, sums.pair[n]);
      add_scaled(c[n], sum, kScale, kScale);
    }
  }
};

// value = d s code - dmin m, s and m of six bits.
template <bool kFiveBits>
struct GemvQ45_K : GemvNibbles {
  static constexpr int kConstantBytes = kFiveBits ? block_pieces::kQ5_K : block_pieces::kQ4_K;
  struct Constants {
    uint32_t scales;  // a byte a group
    uint32_t minima;  // f16, of the groups whose sums of x the thread has
    __half2 factors;  // d, dmin
    uint32_t plane;
    __device__ __forceinline__ void read(const uint8_t* row, int window, int t) {
      const uint8_t* const heads = row + (kFiveBits ? block_pieces::kQ5_KHeads : 0);
      const auto bytes = load<uint2>(heads + window * 8);
      factors = halves_of(load<uint32_t>(heads + block_pieces::kKFactors + window / 2 * 4));
      scales = bytes.x;
      minima = bits_of(__hsub2(halves_of(__byte_perm(bytes.y, 0x64646464u, t % 2 == 0 ? 0x4140 : 0x4342)),
                               __float2half2_rn(1024.f)));
      plane = 0;
      if constexpr (kFiveBits) plane = load<uint32_t>(row + window * 16 + t * 4);
    }
    // Of group j: the byte in the mantissa of 2^23.
    __device__ __forceinline__ float scale(int j) const {
      return __uint_as_float(__byte_perm(scales, 0x4b000000u, 0x7650u | static_cast<uint32_t>(j))) - 8388608.f;
    }
  };
  template <int kTokenTiles>
  using Sums = GemvGroupSums<kTokenTiles>;
  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>& sums, const uint32_t (&x)[kTokenTiles][16]) {
    sums.sum(x);
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants& ga, const Constants& gb,
                                                  const uint32_t (&x)[kTokenTiles][16], const Sums<kTokenTiles>& sums) {
    float all[kTokenTiles][4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float sum[kTokenTiles][4] = {};
      if constexpr (!kFiveBits) {
        multiply_group<kTokenTiles>(sum, a, b, x, j);
      } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const uint32_t va = word_of(a, j) >> (8 * s), vb = word_of(b, j) >> (8 * s);
          const uint32_t pa = __funnelshift_r(ga.plane, ga.plane, j + 8 * s),
                         pb = __funnelshift_r(gb.plane, gb.plane, j + 8 * s);
          const uint32_t a0 = (va & 0x000f000fu) | (pa & 0x00100010u), a1 = (vb & 0x000f000fu) | (pb & 0x00100010u);
          const uint32_t a2 = (va & 0x00f000f0u) | (pa & 0x01000100u), a3 = (vb & 0x00f000f0u) | (pb & 0x01000100u);
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n)
            multiply_tile<X>(sum[n], a0, a1, a2, a3, x[n][4 * j + 2 * s], x[n][4 * j + 2 * s + 1]);
        }
      }
      const float sa = ga.scale(j), sb = gb.scale(j);
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) add_scaled(all[n], sum[n], sa, sb);
    }
    const float2 fa = __half22float2(ga.factors), fb = __half22float2(gb.factors);
    constexpr float kScale = Sums<kTokenTiles>::kUp / kSumScale;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      float sum[4] = {};
      multiply_half_tile(sum, ga.minima, gb.minima, sums.pair[n]);
      add_scaled(c[n], all[n], fa.x, fb.x);
      add_scaled(c[n], sum, -fa.y * kScale, -fb.y * kScale);
    }
  }
};

// value = d s (code - 32), s an int8 for 16 columns, which are of two threads: s (code - 32) is multiplied as f16,
// which holds it but for the largest, whose last bit is rounded.
struct GemvQ6_K : GemvNibbles {
  static constexpr int kConstantBytes = block_pieces::kQ6_K;
  static constexpr float kSumScale = 0x1p16f;
  struct Constants {
    __half2 scales[2];  // of words 0 and 1, 2 and 3
    uint2 planes;
    float factor;
    __device__ __forceinline__ void read(const uint8_t* row, int window, int t) {
      planes = load<uint2>(row + window * 32 + t * 8);
      const auto bytes = load<uint2>(row + block_pieces::kQ6_KScales + window * 8);
      const uint32_t selector = t < 2 ? 0x4240u : 0x4341u;
      const __half2 offset = __float2half2_rn(1152.f);
      scales[0] = __hsub2(halves_of(__byte_perm(bytes.x ^ 0x80808080u, 0x64646464u, selector)), offset);
      scales[1] = __hsub2(halves_of(__byte_perm(bytes.y ^ 0x80808080u, 0x64646464u, selector)), offset);
      factor = __half2float(load<__half>(row + block_pieces::kQ6_KFactors + window / 2 * 2));
    }
  };
  template <int kTokenTiles>
  struct Sums {};
  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>&, const uint32_t (&)[kTokenTiles][16]) {}

  // Pairs of s (code - 32) 2^-16, and of that times 16.
  static __device__ __forceinline__ void decode(const uint4& codes, const Constants& g, int j, int s, uint32_t* even,
                                                uint32_t* odd) {
    const uint32_t v = word_of(codes, j) >> (8 * s);
    const uint32_t plane = j < 2 ? g.planes.x : g.planes.y, p = __funnelshift_r(plane, plane, 2 * (j % 2) + 8 * s);
    const __half2 pair = g.scales[j / 2], scale = j % 2 == 0 ? __low2half2(pair) : __high2half2(pair);
    const __half2 up = __hmul2(scale, __float2half2_rn(0x1p8f));
    *even = bits_of(
        __hfma2(halves_of((v & 0x000f000fu) | (p & 0x00300030u)), up, __hmul2(scale, __float2half2_rn(-0x1p-11f))));
    *odd = bits_of(
        __hfma2(halves_of((v & 0x00f000f0u) | (p & 0x03000300u)), up, __hmul2(scale, __float2half2_rn(-0x1p-7f))));
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants& ga, const Constants& gb,
                                                  const uint32_t (&x)[kTokenTiles][16], const Sums<kTokenTiles>&) {
    float sum[kTokenTiles][4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        uint32_t a0, a1, a2, a3;
        decode(a, ga, j, s, &a0, &a2);
        decode(b, gb, j, s, &a1, &a3);
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n)
          multiply_tile<X>(sum[n], a0, a1, a2, a3, x[n][4 * j + 2 * s], x[n][4 * j + 2 * s + 1]);
      }
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) add_scaled(c[n], sum[n], ga.factor, gb.factor);
  }
};

// value = d code: bytes that are the code + 128, in the mantissa of 1024.
struct GemvQ8_0 {
  using X = __half;
  static constexpr int kWindow = 64, kChunks = 2, kBits = 8, kXPad = 32;
  static constexpr bool kChains = false, kRounds = false;
  static constexpr int kConstantBytes = block_pieces::kQ8_0;
  static constexpr float kOddScale = 1, kSumScale = 1;
  struct Constants {
    __half2 scales;
    __device__ __forceinline__ void read(const uint8_t* row, int window, int) {
      scales = halves_of(load<uint32_t>(row + window * 4));
    }
  };
  template <int kTokenTiles>
  struct Sums {};
  static __device__ __forceinline__ int chunk_k(int j, int t) { return 32 * j + 8 * t; }
  template <int kTokenTiles>
  static __device__ __forceinline__ void sum_x(Sums<kTokenTiles>&, const uint32_t (&)[kTokenTiles][8]) {}

  static __device__ __forceinline__ void decode(uint32_t codes, uint32_t* low, uint32_t* high) {
    const __half2 offset = __float2half2_rn(1152.f);
    *low = bits_of(__hsub2(halves_of(__byte_perm(codes, 0x64646464u, 0x4140)), offset));
    *high = bits_of(__hsub2(halves_of(__byte_perm(codes, 0x64646464u, 0x4342)), offset));
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const Constants& ga, const Constants& gb,
                                                  const uint32_t (&x)[kTokenTiles][8], const Sums<kTokenTiles>&) {
    const float2 fa = __half22float2(ga.scales), fb = __half22float2(gb.scales);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum[kTokenTiles][4] = {};
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        uint32_t a0, a1, a2, a3;
        decode(word_of(a, 2 * j + s), &a0, &a2);
        decode(word_of(b, 2 * j + s), &a1, &a3);
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n)
          multiply_tile<X>(sum[n], a0, a1, a2, a3, x[n][4 * j + 2 * s], x[n][4 * j + 2 * s + 1]);
      }
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
        GemvNibbles::add_scaled(c[n], sum[n], j == 0 ? fa.x : fa.y, j == 0 ? fb.x : fb.y);
    }
  }
};

}  // namespace bolide::cuda
