// Rows of weights in pieces (gemv_layout.h, gemv_block_layout.h) to float32, eight neighbours along K at a time, with
// the bits of cuda_decode.cuh.
#pragma once

#include "kernels/common/cuda_decode.cuh"
#include "kernels/linear/gemv_block_layout.h"

namespace bolide::cuda {

// Unit u of a row whose windows have 128 columns.
struct PieceUnit {
  int window, j, t;
  __device__ __forceinline__ explicit PieceUnit(int u) : window(u / 16), j(u % 16 / 4), t(u % 4) {}
  __device__ __forceinline__ uint32_t codes(Bytes row) const {
    return *reinterpret_cast<const uint32_t*>(row + window * 64 + t * 16 + j * 4);
  }
  __device__ __forceinline__ Bytes together(Bytes constants, int bytes) const { return constants + window / 8 * bytes; }
  __device__ __forceinline__ int in_eight() const { return window % 8; }
};
__device__ __forceinline__ int piece_code(uint32_t codes, int i) {
  return static_cast<int>(codes >> (4 * block_pieces::nibble_of(i)) & 15u);
}

template <int kGroup>
struct PiecesW4 {
  static __device__ __forceinline__ void unit(Bytes row, int64_t groups_from, int u, float (&out)[kUnit]) {
    const PieceUnit at(u);
    const uint32_t codes = at.codes(row);
    const int group = kGroup == 128 ? at.window : at.window * 4 + at.j;
    const auto constants = *reinterpret_cast<const uint32_t*>(row + groups_from + group * 4);
    const float d = __half2float(__ushort_as_half(static_cast<uint16_t>(constants)));
    const int zero = static_cast<int>(constants >> 16 & 255u);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(d, wide_int(piece_code(codes, i) - zero));
  }
};

struct PiecesQ4_0 {
  static __device__ __forceinline__ void unit(Bytes row, int64_t groups_from, int u, float (&out)[kUnit]) {
    const PieceUnit at(u);
    const uint32_t codes = at.codes(row);
    const float d = half_at(at.together(row + groups_from, block_pieces::kQ4_0) + at.in_eight() * 8 + at.j * 2);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(wide_int(piece_code(codes, i) - 8), d);
  }
};

struct PiecesQ4_1 {
  static __device__ __forceinline__ void unit(Bytes row, int64_t groups_from, int u, float (&out)[kUnit]) {
    const PieceUnit at(u);
    const uint32_t codes = at.codes(row);
    const Bytes group = at.together(row + groups_from, block_pieces::kQ4_1) + at.in_eight() * 16 + at.j * 4;
    const float d = half_at(group), m = half_at(group + 2);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = __fadd_rn(mul(wide_int(piece_code(codes, i)), d), m);
  }
};

template <bool kFiveBits>
struct PiecesQ45_K {
  static __device__ __forceinline__ void unit(Bytes row, int64_t groups_from, int u, float (&out)[kUnit]) {
    const PieceUnit at(u);
    const uint32_t codes = at.codes(row);
    const Bytes all = at.together(row + groups_from, kFiveBits ? block_pieces::kQ5_K : block_pieces::kQ4_K);
    const Bytes heads = all + (kFiveBits ? block_pieces::kQ5_KHeads : 0);
    const Bytes bytes = heads + at.in_eight() * 8 + at.j;
    const Bytes factors = heads + block_pieces::kKFactors + at.in_eight() / 2 * 4;
    const float factor = mul(half_at(factors), wide_int(bytes[0])),
                minimum = mul(half_at(factors + 2), wide_int(bytes[4]));
    uint32_t plane = 0;
    if (kFiveBits) plane = *reinterpret_cast<const uint32_t*>(all + at.in_eight() * 16 + at.t * 4);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      int code = piece_code(codes, i);
      if (kFiveBits) code |= static_cast<int>(plane >> block_pieces::q5_bit(at.j, i) & 1u) << 4;
      out[i] = __fsub_rn(mul(factor, wide_int(code)), minimum);
    }
  }
};

struct PiecesQ6_K {
  static __device__ __forceinline__ void unit(Bytes row, int64_t groups_from, int u, float (&out)[kUnit]) {
    const PieceUnit at(u);
    const uint32_t codes = at.codes(row);
    const Bytes all = at.together(row + groups_from, block_pieces::kQ6_K);
    const auto plane = *reinterpret_cast<const uint32_t*>(all + at.in_eight() * 32 + at.t * 8 + at.j / 2 * 4);
    const int scale = static_cast<int8_t>(all[block_pieces::kQ6_KScales + at.in_eight() * 8 + at.j * 2 + at.t / 2]);
    const float factor = mul(half_at(all + block_pieces::kQ6_KFactors + at.in_eight() / 2 * 2), wide_int(scale));
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const int above = static_cast<int>(plane >> block_pieces::q6_bit(at.j, i) & 3u) << 4;
      out[i] = mul(factor, wide_int((piece_code(codes, i) | above) - 32));
    }
  }
};

struct PiecesQ8_0 {
  static __device__ __forceinline__ void unit(Bytes row, int64_t groups_from, int u, float (&out)[kUnit]) {
    const int window = u / 8, j = u % 8 / 4, t = u % 4;
    const uint2 codes = bytes8<8>(row + window * 64 + t * 16 + j * 8);
    const float d = half_at(row + groups_from + window / 8 * block_pieces::kQ8_0 + window % 8 * 4 + j * 2);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[i] = mul(wide_int(byte_of(codes, i) - 128), d);
  }
};

// f.operator()<P>() for the pieces of a kind, else cudaErrorInvalidValue.
template <class F>
int dispatch_pieces(WeightKind kind, F&& f) {
  switch (kind) {
    case WeightKind::kBlockW4_G128: return f.template operator()<PiecesW4<128>>();
    case WeightKind::kBlockW4_G64:
    case WeightKind::kBlockW4_G32: return f.template operator()<PiecesW4<32>>();
    case WeightKind::kBlockQ4_0: return f.template operator()<PiecesQ4_0>();
    case WeightKind::kBlockQ4_1: return f.template operator()<PiecesQ4_1>();
    case WeightKind::kBlockQ4_K: return f.template operator()<PiecesQ45_K<false>>();
    case WeightKind::kBlockQ5_K: return f.template operator()<PiecesQ45_K<true>>();
    case WeightKind::kBlockQ6_K: return f.template operator()<PiecesQ6_K>();
    case WeightKind::kBlockQ8_0: return f.template operator()<PiecesQ8_0>();
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bolide::cuda
