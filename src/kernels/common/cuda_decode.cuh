// Stored weights to float32, eight neighbours along K at a time: one struct for each type of codes and block scheme,
// with the same operations in the same order as tensor/block_codec.cc, so the same bits (no product is fused with a
// sum).
//
// W::unit(row, u, valid, wide, out): elements [8 u, 8 u + 8) of the row; the first `valid` of them exist (8 for block
// schemes), the others become 0. `wide`: the row starts at a multiple of 16 bytes. Blocks need 4-byte aligned weights.
#pragma once

#include "kernels/common/cuda_f8.cuh"
#include "kernels/common/weight_kind.h"

namespace bolide::cuda {

inline constexpr int kUnit = 8;

using Bytes = const uint8_t*;

__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float half_at(Bytes p) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const uint16_t*>(p)));
}

// Eight bytes; kAlign bytes is what p is a multiple of.
template <int kAlign>
__device__ __forceinline__ uint2 bytes8(Bytes p) {
  if constexpr (kAlign == 8) {
    return *reinterpret_cast<const uint2*>(p);
  } else if constexpr (kAlign == 4) {
    const auto* w = reinterpret_cast<const uint32_t*>(p);
    return {w[0], w[1]};
  } else {
    const auto* h = reinterpret_cast<const uint16_t*>(p);
    return {h[0] | uint32_t{h[1]} << 16, h[2] | uint32_t{h[3]} << 16};
  }
}
template <int kAlign>
__device__ __forceinline__ uint32_t bytes4(Bytes p) {
  if constexpr (kAlign >= 4) {
    return *reinterpret_cast<const uint32_t*>(p);
  } else {
    const auto* h = reinterpret_cast<const uint16_t*>(p);
    return h[0] | uint32_t{h[1]} << 16;
  }
}
__device__ __forceinline__ int byte_of(uint2 bytes, int i) {
  return static_cast<int>((i < 4 ? bytes.x >> (8 * i) : bytes.y >> (8 * (i - 4))) & 255u);
}
__device__ __forceinline__ float wide_int(int i) { return static_cast<float>(i); }

// A float type, or int8 codes.
template <class T>
struct Plain {
  static __device__ __forceinline__ float widen_one(T v) {
    if constexpr (sizeof(T) == 8) {
      return static_cast<float>(v);
    } else {
      return widen(v);
    }
  }
  static __device__ __forceinline__ void unit(Bytes row, int64_t u, int valid, bool wide_row, float (&out)[kUnit]) {
    const T* p = reinterpret_cast<const T*>(row) + u * kUnit;
    if (wide_row && valid == kUnit) {
      constexpr int kPacks = sizeof(T) * kUnit > 16 ? static_cast<int>(sizeof(T)) * kUnit / 16 : 1;
      constexpr int kCount = kUnit / kPacks;
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        const auto pack = load<Pack<T, kCount>>(p + j * kCount);
#pragma unroll
        for (int i = 0; i < kCount; ++i) out[j * kCount + i] = widen_one(pack.value[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kUnit; ++i) out[i] = i < valid ? widen_one(p[i]) : 0.f;
    }
  }
};

// The bits of this 8-bit float moved to where a half has them give the value itself.
struct F8E5M2 {
  uint8_t bits;
};
__device__ __forceinline__ float widen(int8_t v) { return static_cast<float>(v); }
__device__ __forceinline__ float widen(F8E5M2 v) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(v.bits << 8)));
}

// A scheme's decode8(block, u, out) has unit u of the block.
template <class Scheme>
struct Blocks {
  static __device__ __forceinline__ void unit(Bytes row, int64_t u, int valid, bool, float (&out)[kUnit]) {
    constexpr int kUnits = Scheme::kElements / kUnit;
    if (valid > 0) {
      Scheme::decode8(row + u / kUnits * Scheme::kBytes, static_cast<int>(u % kUnits), out);
    } else {
#pragma unroll
      for (int i = 0; i < kUnit; ++i) out[i] = 0.f;
    }
  }
};

// Groups of 32: low nibbles of 16 bytes are the first half, high ones the second.
struct Q4_0 {
  static constexpr int kElements = 32, kBytes = 18;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b);
    const uint2 q = bytes8<2>(b + 2 + (u & 1) * 8);
    const int shift = (u >> 1) * 4;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(wide_int(((byte_of(q, i) >> shift) & 15) - 8), d);
  }
};

struct Q4_1 {
  static constexpr int kElements = 32, kBytes = 20;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b), m = half_at(b + 2);
    const uint2 q = bytes8<4>(b + 4 + (u & 1) * 8);
    const int shift = (u >> 1) * 4;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = __fadd_rn(mul(wide_int((byte_of(q, i) >> shift) & 15), d), m);
  }
};

struct Q5_0 {
  static constexpr int kElements = 32, kBytes = 22;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b);
    const int high = static_cast<int>(bytes4<2>(b + 2) >> (8 * u));
    const uint2 q = bytes8<2>(b + 6 + (u & 1) * 8);
    const int shift = (u >> 1) * 4;
#pragma unroll
    for (int i = 0; i < kUnit; ++i)
      out[i] = mul(wide_int((((byte_of(q, i) >> shift) & 15) | ((high >> i) & 1) << 4) - 16), d);
  }
};

struct Q5_1 {
  static constexpr int kElements = 32, kBytes = 24;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b), m = half_at(b + 2);
    const int high = static_cast<int>(bytes4<4>(b + 4) >> (8 * u));
    const uint2 q = bytes8<4>(b + 8 + (u & 1) * 8);
    const int shift = (u >> 1) * 4;
#pragma unroll
    for (int i = 0; i < kUnit; ++i)
      out[i] = __fadd_rn(mul(wide_int(((byte_of(q, i) >> shift) & 15) | ((high >> i) & 1) << 4), d), m);
  }
};

struct Q8_0 {
  static constexpr int kElements = 32, kBytes = 34;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b);
    const uint2 q = bytes8<2>(b + 2 + u * 8);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(wide_int(static_cast<int8_t>(byte_of(q, i))), d);
  }
};

// The value of an iq4 code: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, four to a word, lowest first.
__device__ __forceinline__ float iq4_value(int code) {
  const uint32_t index = static_cast<uint32_t>(code) & 7u;
  const uint32_t low = __byte_perm(0xbfad9881u, 0xf6eaddcfu, index),
                 high = __byte_perm(0x26190d01u, 0x71594535u, index);
  return wide_int(static_cast<int8_t>((code & 8) != 0 ? high : low));
}

struct IQ4_NL {
  static constexpr int kElements = 32, kBytes = 18;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b);
    const uint2 q = bytes8<2>(b + 2 + (u & 1) * 8);
    const int shift = (u >> 1) * 4;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(d, iq4_value((byte_of(q, i) >> shift) & 15));
  }
};

// Blocks of 256. Two-bit codes: halves of 128, 32 bytes hold four groups of 32.
struct Q2_K {
  static constexpr int kElements = 256, kBytes = 84;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    const int scale = b[u / 2];
    const uint2 q = bytes8<4>(b + 16 + u / 16 * 32 + u % 4 * 8);
    const int shift = 2 * (u % 16 / 4);
    const float factor = mul(d, wide_int(scale & 15)), minimum = mul(dmin, wide_int(scale >> 4));
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = __fsub_rn(mul(factor, wide_int((byte_of(q, i) >> shift) & 3)), minimum);
  }
};

struct Q3_K {
  static constexpr int kElements = 256, kBytes = 110;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const int group = u / 2;
    const int low = (b[96 + group % 8] >> (group / 8 * 4)) & 15;
    const int high = (b[104 + group % 4] >> (group / 4 * 2)) & 3;
    const float scale = mul(half_at(b + 108), wide_int((low | high << 4) - 32));
    const uint2 q = bytes8<2>(b + 32 + u / 16 * 32 + u % 4 * 8), top = bytes8<2>(b + u % 4 * 8);
    const int shift = 2 * (u % 16 / 4), bit = u / 4;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const int code = (byte_of(q, i) >> shift) & 3, set = (byte_of(top, i) >> bit) & 1;
      out[i] = mul(scale, wide_int(code + 4 * set - 4));
    }
  }
};

// The 6-bit scale and minimum of group 0..7 of q4_k and q5_k.
struct KScale {
  int scale, minimum;
};
__device__ __forceinline__ KScale k_scale(Bytes packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  const int both = packed[group + 4];
  return {(both & 15) | packed[group - 4] >> 6 << 4, both >> 4 | packed[group] >> 6 << 4};
}

struct Q4_K {
  static constexpr int kElements = 256, kBytes = 144;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const int group = u / 4;
    const KScale s = k_scale(b + 4, group);
    const float factor = mul(half_at(b), wide_int(s.scale)), minimum = mul(half_at(b + 2), wide_int(s.minimum));
    const uint2 q = bytes8<4>(b + 16 + group / 2 * 32 + u % 4 * 8);
    const int shift = 4 * (group % 2);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = __fsub_rn(mul(factor, wide_int((byte_of(q, i) >> shift) & 15)), minimum);
  }
};

struct Q5_K {
  static constexpr int kElements = 256, kBytes = 176;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const int group = u / 4;
    const KScale s = k_scale(b + 4, group);
    const float factor = mul(half_at(b), wide_int(s.scale)), minimum = mul(half_at(b + 2), wide_int(s.minimum));
    const uint2 q = bytes8<4>(b + 48 + group / 2 * 32 + u % 4 * 8), high = bytes8<4>(b + 16 + u % 4 * 8);
    const int shift = 4 * (group % 2);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const int code = ((byte_of(q, i) >> shift) & 15) | ((byte_of(high, i) >> group) & 1) << 4;
      out[i] = __fsub_rn(mul(factor, wide_int(code)), minimum);
    }
  }
};

struct Q6_K {
  static constexpr int kElements = 256, kBytes = 210;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const int half = u / 16, quarter = u % 16 / 4, l = u % 4 * 8;
    const float scale = mul(half_at(b + 208), wide_int(static_cast<int8_t>(b[192 + u / 2])));
    const uint2 low = bytes8<2>(b + half * 64 + quarter % 2 * 32 + l), high = bytes8<2>(b + 128 + half * 32 + l);
    const int shift = 4 * (quarter / 2), top = 2 * quarter;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const int code = ((byte_of(low, i) >> shift) & 15) | ((byte_of(high, i) >> top) & 3) << 4;
      out[i] = mul(scale, wide_int(code - 32));
    }
  }
};

struct IQ4_XS {
  static constexpr int kElements = 256, kBytes = 136;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const int group = u / 4, part = u % 4;
    const int low = (b[4 + group / 2] >> (group % 2 * 4)) & 15;
    const int high = (b[2 + group / 4] >> (group % 4 * 2)) & 3;
    const float scale = mul(half_at(b), wide_int((low | high << 4) - 32));
    const uint2 q = bytes8<4>(b + 8 + group * 16 + (part & 1) * 8);
    const int shift = (part >> 1) * 4;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(scale, iq4_value((byte_of(q, i) >> shift) & 15));
  }
};

// w4_*: groups of 32 as in q4_1, kGroup elements to a scale and zero point.
template <int kGroup>
struct W4 {
  static constexpr int kElements = kGroup, kBytes = 4 + kGroup / 2;
  static __device__ __forceinline__ void decode8(Bytes b, int u, float (&out)[kUnit]) {
    const float d = half_at(b);
    const int zero = b[2], shift = (u % 4 >> 1) * 4;
    const uint2 q = bytes8<4>(b + 4 + u / 4 * 16 + (u & 1) * 8);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(d, wide_int(((byte_of(q, i) >> shift) & 15) - zero));
  }
};

// f.operator()<W>() for the struct of a kind of a family, else cudaErrorInvalidValue. A .cu file instantiates what it
// names here, so families are spread over files.
template <class F>
int dispatch_floats(WeightKind kind, F&& f) {
  switch (kind) {
    case WeightKind::kF64: return f.template operator()<Plain<double>>();
    case WeightKind::kF32: return f.template operator()<Plain<float>>();
    case WeightKind::kF16: return f.template operator()<Plain<__half>>();
    case WeightKind::kBF16: return f.template operator()<Plain<__nv_bfloat16>>();
    case WeightKind::kF8E4M3: return f.template operator()<Plain<F8E4M3>>();
    case WeightKind::kF8E5M2: return f.template operator()<Plain<F8E5M2>>();
    case WeightKind::kI8: return f.template operator()<Plain<int8_t>>();
    default: return cudaErrorInvalidValue;
  }
}
template <class F>
int dispatch_blocks32(WeightKind kind, F&& f) {
  switch (kind) {
    case WeightKind::kBlockQ4_0: return f.template operator()<Blocks<Q4_0>>();
    case WeightKind::kBlockQ4_1: return f.template operator()<Blocks<Q4_1>>();
    case WeightKind::kBlockQ5_0: return f.template operator()<Blocks<Q5_0>>();
    case WeightKind::kBlockQ5_1: return f.template operator()<Blocks<Q5_1>>();
    case WeightKind::kBlockQ8_0: return f.template operator()<Blocks<Q8_0>>();
    case WeightKind::kBlockIQ4_NL: return f.template operator()<Blocks<IQ4_NL>>();
    default: return cudaErrorInvalidValue;
  }
}
template <class F>
int dispatch_blocks_w4(WeightKind kind, F&& f) {
  switch (kind) {
    case WeightKind::kBlockW4_G32: return f.template operator()<Blocks<W4<32>>>();
    case WeightKind::kBlockW4_G64: return f.template operator()<Blocks<W4<64>>>();
    case WeightKind::kBlockW4_G128: return f.template operator()<Blocks<W4<128>>>();
    default: return cudaErrorInvalidValue;
  }
}
template <class F>
int dispatch_blocks256(WeightKind kind, F&& f) {
  switch (kind) {
    case WeightKind::kBlockQ2_K: return f.template operator()<Blocks<Q2_K>>();
    case WeightKind::kBlockQ3_K: return f.template operator()<Blocks<Q3_K>>();
    case WeightKind::kBlockQ4_K: return f.template operator()<Blocks<Q4_K>>();
    case WeightKind::kBlockQ5_K: return f.template operator()<Blocks<Q5_K>>();
    case WeightKind::kBlockQ6_K: return f.template operator()<Blocks<Q6_K>>();
    case WeightKind::kBlockIQ4_XS: return f.template operator()<Blocks<IQ4_XS>>();
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bolide::cuda
