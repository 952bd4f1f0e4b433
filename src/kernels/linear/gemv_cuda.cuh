// Products of up to 16 tokens: bound by reading the weight once, so the kernel is a stream of weights with tensor cores
// at its end. One block a multiprocessor owns a range of output rows; its 8 warps take the columns in turn, so each
// weight byte is read by one thread, and no two threads wait for each other until their sums meet.
//
// - Stream: each thread copies 16-byte pieces of the rows it multiplies into its own places in shared memory
// (cp.async),
//   kDepth groups of tiles ahead. It begins before the kernel waits for the one in front of it, since weights depend
//   on nothing: with programmatic dependent launch the memory never idles between two products.
// - Product: mma m16n8k16, 16 rows by 8 tokens. Its k may be numbered freely as long as weight and x agree, so a
// thread's
//   piece holds neighbouring k, and rows need no other order than the file's.
// - Rows come in pairs that meet in one thread: gate and up, or the two halves of a rotated head.
// - x lies in shared memory as bf16 where it fits (always with a norm), else it is read a window ahead through level 1.
// - RmsNorm is a factor a token: x * gain is multiplied, and the result scaled.
// - Sums of the warps are added in fixed order: bits depend on neither the batch nor the run.
#pragma once

#include <type_traits>

#include "kernels/act/act_cuda.cuh"
#include "kernels/common/cuda_f8.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/linear/gemv_cuda_parts.h"
#include "kernels/rope/rope_cuda.cuh"

namespace bolide::cuda {

inline constexpr int kGemvWarps = 8, kGemvThreads = kGemvWarps * kWarp;
inline constexpr int kGemvTiles = 2;  // of a group: 8 pairs of rows each

struct GemvArgs {
  const uint8_t* codes;
  int64_t row_bytes, groups_from;
  uint32_t row_codes;  // pieces of 16 bytes of codes in a row
  int rows, k, tokens;
  int pairs, pairs_block;  // of the weight, of a block
  const void* x;
  int64_t x_stride;
  const float *gain, *scale, *token_scale, *bias;
  float eps;
  bool x_shared;
  GemvWork::Pairs kind;
  Elementwise act;
  const void* residual;
  int64_t residual_stride;
  bool residual_narrow, out_narrow;
  void* out;
  int64_t out_stride;
};

// For kHeads.
struct GemvHeads {
  const int32_t* positions;
  int heads, head_dim;
  KvPools pools;
  RopeParameters rope;
};

// Copies kBytes, of which the first `valid` exist and the others become zeros; all 16 past level 1.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, int valid) {
  const auto there = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(there), "l"(global), "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(there), "l"(global), "n"(kBytes), "r"(valid)
                 : "memory");
  }
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// c += a b of m16n8k16.
template <class T>
__device__ __forceinline__ void multiply_tile(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                              uint32_t b0, uint32_t b1) {
  if constexpr (sizeof(T) == sizeof(__half) && std::is_same_v<T, __half>) {
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

// Formats. kChunks pieces of 8 neighbouring k belong to a thread in a window, piece j at chunk_k(j, t) from its start;
// a piece is two steps of m16n8k16. X: what weights and x are multiplied as; codes are multiplied as f16, which holds
// them exactly, and x is then scaled by a power of two (gemv_share_x). kGroupBytes: constants of a (row, window) in the
// second plane.
struct GemvBF16 {
  using X = __nv_bfloat16;
  static constexpr int kWindow = 32, kChunks = 1, kGroupBytes = 0, kBits = 16;
  static __device__ __forceinline__ int chunk_k(int, int t) { return 8 * t; }

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const uint32_t*, const uint32_t*,
                                                  const uint32_t (&x)[kTokenTiles][4 * kChunks]) {
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
  static constexpr int kWindow = 64, kChunks = 2, kGroupBytes = 0, kBits = 8;
  static __device__ __forceinline__ int chunk_k(int j, int t) { return 16 * t + 8 * j; }

  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const uint32_t*, const uint32_t*,
                                                  const uint32_t (&x)[kTokenTiles][4 * kChunks]) {
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
// constants are a f16 scale and a u8 zero point in 4 bytes.
template <int kGroup>
struct GemvW4 {
  using X = __half;
  static constexpr int kWindow = 128, kChunks = 4, kGroups = 128 / kGroup, kGroupBytes = 4 * kGroups, kBits = 4;
  static constexpr int kPerGroup = 4 / kGroups;  // words
  static __device__ __forceinline__ int chunk_k(int j, int t) { return 32 * j + 8 * t; }

  // Eight codes less the zero point: in the mantissa of 1024, low nibbles as they are, high ones times 16.
  static __device__ __forceinline__ void codes(uint32_t word, __half2 low_zero, __half2 high_zero, uint32_t (&out)[4]) {
    const __half2 sixteenth = __float2half2_rn(0.0625f);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      out[2 * i] = bits_of(__hsub2(halves_of((word & 0x000f000fu) | 0x64006400u), low_zero));
      out[2 * i + 1] = bits_of(__hfma2(halves_of((word & 0x00f000f0u) | 0x64006400u), sixteenth, high_zero));
      word >>= 8;
    }
  }
  template <int kTokenTiles>
  static __device__ __forceinline__ void multiply(float (&c)[kTokenTiles][4], const uint4& a, const uint4& b,
                                                  const uint32_t* ga, const uint32_t* gb,
                                                  const uint32_t (&x)[kTokenTiles][4 * kChunks]) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      // 1024 + zero and -(64 + zero).
      const uint32_t zero_a = (ga[group] >> 16) * 0x00010001u, zero_b = (gb[group] >> 16) * 0x00010001u;
      const __half2 low_a = halves_of(zero_a | 0x64006400u), low_b = halves_of(zero_b | 0x64006400u);
      const __half2 high_a = halves_of((zero_a << 4) + 0xd400d400u), high_b = halves_of((zero_b << 4) + 0xd400d400u);
      float sum[kTokenTiles][4] = {};
#pragma unroll
      for (int j = group * kPerGroup; j < (group + 1) * kPerGroup; ++j) {
        uint32_t pa[4], pb[4];
        codes(word_of(a, j), low_a, high_a, pa);
        codes(word_of(b, j), low_b, high_b, pb);
#pragma unroll
        for (int s = 0; s < 2; ++s)
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n)
            multiply_tile<X>(sum[n], pa[2 * s], pb[2 * s], pa[2 * s + 1], pb[2 * s + 1], x[n][4 * j + 2 * s],
                             x[n][4 * j + 2 * s + 1]);
      }
      const float sa = __half2float(__ushort_as_half(static_cast<uint16_t>(ga[group]))),
                  sb = __half2float(__ushort_as_half(static_cast<uint16_t>(gb[group])));
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        c[n][0] = fmaf(sa, sum[n][0], c[n][0]), c[n][1] = fmaf(sa, sum[n][1], c[n][1]);
        c[n][2] = fmaf(sb, sum[n][2], c[n][2]), c[n][3] = fmaf(sb, sum[n][3], c[n][3]);
      }
    }
  }
};

// The two rows of pair `p` of a block that has the pairs [begin, end). kRows: the rows from 2 begin on, tile by tile,
// the first of the pairs before the second.
__device__ __forceinline__ void gemv_rows(const GemvArgs& a, const GemvHeads& h, int begin, int end, int p, int* low,
                                          int* high) {
  if (a.kind == GemvWork::Pairs::kRows) {
    const int at = p - begin, tile = at / 8;
    *low = min(2 * begin + at + 8 * tile, a.rows - 1);
    *high = min(*low + max(min(8, end - begin - 8 * tile), 0), a.rows - 1);
    return;
  }
  p = min(p, a.pairs - 1);
  if (a.kind == GemvWork::Pairs::kHalves) {
    *low = p, *high = p + a.pairs;
    return;
  }
  const int half_dim = h.head_dim / 2, head = p / half_dim, i = p - head * half_dim, half = h.rope.half;
  *low = head * h.head_dim + (i < half ? i : half + i);
  *high = *low + (i < half ? half : half_dim - half);  // what is not rotated is paired as well
}

// What is done with the sums of a pair of rows for one token.
__device__ __forceinline__ float gemv_residual(const GemvArgs& a, int token, int row) {
  if (a.residual == nullptr) return 0;
  const int64_t at = token * a.residual_stride + row;
  return a.residual_narrow ? widen(static_cast<const __nv_bfloat16*>(a.residual)[at])
                           : static_cast<const float*>(a.residual)[at];
}
__device__ __forceinline__ void gemv_store(const GemvArgs& a, int token, int row, float value) {
  const int64_t at = token * a.out_stride + row;
  if (a.out_narrow) {
    static_cast<__nv_bfloat16*>(a.out)[at] = narrow<__nv_bfloat16>(value);
  } else {
    static_cast<float*>(a.out)[at] = value;
  }
}
__device__ __forceinline__ void gemv_cache(const KvPools& pools, void* pool, int64_t element, float value) {
  if (pools.dtype == DType::kBF16) {
    static_cast<__nv_bfloat16*>(pool)[element] = narrow<__nv_bfloat16>(value);
  } else if (pools.dtype == DType::kF32) {
    static_cast<float*>(pool)[element] = value;
  } else {
    static_cast<F8E4M3*>(pool)[element] = narrow<F8E4M3>(value);
  }
}
__device__ __forceinline__ void gemv_finish_heads(const GemvArgs& a, const GemvHeads& h, int token, int position,
                                                  int64_t slot, int low, int high, float one, float two) {
  const int head = low / h.head_dim, dim = low - head * h.head_dim, group = head - h.heads;
  if (group < h.pools.kv_heads && dim < h.rope.half) {
    int length = 0;
    if (h.rope.kind != RopeParameters::Kind::kFixed)
      length = h.rope.rope_length[sequence_of(h.rope.cu_tokens, h.rope.sequences, token)];
    float c, s;
    cos_sin(static_cast<float>(position) * frequency(h.rope, dim, length), &c, &s);
    c *= h.rope.attention_factor, s *= h.rope.attention_factor;
    const float rotated = fmaf(two, c, one * s);
    one = fmaf(one, c, -(two * s));
    two = rotated;
  }
  if (group < 0) {
    gemv_store(a, token, low, one);
    gemv_store(a, token, high, two);
    return;
  }
  if (slot < 0) return;
  const int g = group < h.pools.kv_heads ? group : group - h.pools.kv_heads;
  const int64_t block = slot / h.pools.block_tokens, offset = slot - block * h.pools.block_tokens;
  const int64_t element = ((block * h.pools.kv_heads + g) * h.pools.block_tokens + offset) * h.head_dim + dim;
  void* pool = group < h.pools.kv_heads ? h.pools.k : h.pools.v;
  gemv_cache(h.pools, pool, element, one);
  gemv_cache(h.pools, pool, element + high - low, two);
}

// Elements between two tokens' x in shared memory: what keeps a warp's reads in different banks.
template <class Format>
__host__ __device__ constexpr int gemv_x_pitch(int k) {
  return (k + Format::kWindow - 1) / Format::kWindow * Format::kWindow + (Format::kBits == 8 ? 8 : 32);
}

// What bf16 x is scaled by where it is multiplied as f16, which has more bits and less reach; beyond it is clamped.
inline constexpr float kGemvF16Scale = 0x1p-4f;

__device__ __forceinline__ uint32_t gemv_f16_pair(uint32_t bf16_pair) {
  constexpr float kMost = 65504.f;
  const float low = __uint_as_float(bf16_pair << 16) * kGemvF16Scale;
  const float high = __uint_as_float(bf16_pair & 0xffff0000u) * kGemvF16Scale;
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

// x of every token into shared memory, normalised if there is a gain. Every launch runs through this once, with cold
// instruction caches: loops stay rolled.
template <class Format>
__device__ __forceinline__ void gemv_share_x(const GemvArgs& a, typename Format::X* there, float* partial) {
  using X = typename Format::X;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int pitch = gemv_x_pitch<Format>(a.k), columns = pitch - (Format::kBits == 8 ? 8 : 32);
  // Warps to a token, tokens at a time.
  const int share = a.tokens > 4 ? 1 : a.tokens > 2 ? 2 : a.tokens > 1 ? 4 : 8, together = kGemvWarps / share;
  const int part = warp % share;
  if (a.gain == nullptr) {
#pragma unroll 1
    for (int token = warp / share; token < a.tokens; token += together) {
      const auto* x = static_cast<const __nv_bfloat16*>(a.x) + token * a.x_stride;
#pragma unroll 4
      for (int k = (part * kWarp + lane) * 8; k < columns; k += share * kWarp * 8) {
        uint4 v{};
        if (k < a.k) v = load<uint4>(x + k);
        if constexpr (std::is_same_v<X, __half>)
          v = {gemv_f16_pair(v.x), gemv_f16_pair(v.y), gemv_f16_pair(v.z), gemv_f16_pair(v.w)};
        store(there + token * pitch + k, v);
      }
    }
    __syncthreads();
    return;
  }
#pragma unroll 1
  for (int token = warp / share; token < a.tokens; token += together) {
    const auto* x = static_cast<const float*>(a.x) + token * a.x_stride;
    float sum = 0;
#pragma unroll 4
    for (int k = (part * kWarp + lane) * 4; k < a.k; k += share * kWarp * 4) {
      const auto v = load<float4>(x + k);
      sum = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, sum))));
    }
    sum = warp_sum(sum);
    if (lane == 0) partial[token * kGemvWarps + part] = sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int token = warp / share; token < a.tokens; token += together) {
    const auto* x = static_cast<const float*>(a.x) + token * a.x_stride;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < share; ++i) sum += partial[token * kGemvWarps + i];
    const float factor = rsqrtf(sum / static_cast<float>(a.k) + a.eps);
#pragma unroll 4
    for (int k = (part * kWarp + lane) * 4; k < columns; k += share * kWarp * 4) {
      uint2 packed{};
      if (k < a.k) {
        const auto v = load<float4>(x + k), gain = load<float4>(a.gain + k);
        packed = {gemv_pair<X>(v.x * factor * gain.x, v.y * factor * gain.y),
                  gemv_pair<X>(v.z * factor * gain.z, v.w * factor * gain.w)};
      }
      store(there + token * pitch + k, packed);
    }
  }
  __syncthreads();
}

// Asks for a line in level 2.
__device__ __forceinline__ void prefetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// A pass over the columns has one or two groups of two tiles of 8 pairs of rows in each window. A group is what is
// copied, waited for and multiplied together, kDepth are in flight. All products are this one kernel, so that its
// instructions stay in the cache from one to the next.
template <class Format>
struct GemvShape {
  static constexpr int kHalves = 2, kTiles = 2 * kHalves;
  static constexpr int kDepth = 4;
  static constexpr int kPlaces = kGemvThreads * kDepth * 4;
  static_assert(kDepth % kHalves == 0);
  static size_t shared_bytes(int tokens) {
    return size_t{kPlaces} * (16 + Format::kGroupBytes) +
           sizeof(float4) * kGemvWarps * kTiles * 8 * static_cast<size_t>((tokens + 1) / 2);
  }
};

// Bytes of each row that are asked for in level 2 behind those that fit shared memory, before the kernel may begin.
#ifndef BOLIDE_GEMV_PREFETCH
#define BOLIDE_GEMV_PREFETCH 1024
#endif
inline constexpr int kGemvPrefetch = BOLIDE_GEMV_PREFETCH;

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kGemvThreads, kTokenTiles == 1 ? 2 : 1)
    gemv_kernel(const __grid_constant__ GemvArgs a, const __grid_constant__ GemvHeads heads) {
  using Shape = GemvShape<Format>;
  using X = typename Format::X;
  constexpr int kTiles = Shape::kTiles, kDepth = Shape::kDepth, kHalves = Shape::kHalves;
  constexpr int kGroupWords = Format::kGroupBytes / 4;
  extern __shared__ uint4 shared[];
  __shared__ float partial[kGemvWarps * kTokenTiles * 8];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarp, 0);  // so that it is known uniform
  let_next_start();

  // This thread's places: [depth][tile][row of the pair], then the same for constants, then sums, then x.
  uint4* const queue = shared + warp * (kDepth * 4 * kWarp) + lane;
  auto* const constants_base = reinterpret_cast<uint32_t*>(shared + Shape::kPlaces);
  uint32_t* const constants = constants_base + (warp * (kDepth * 4 * kWarp) + lane) * kGroupWords;
  auto* const sums = reinterpret_cast<float4*>(constants_base + Shape::kPlaces * kGroupWords);
  const int token_pairs = (a.tokens + 1) / 2;
  X* const x_shared = reinterpret_cast<X*>(sums + kGemvWarps * kTiles * 8 * token_pairs);

  const int begin = static_cast<int>(blockIdx.x) * a.pairs_block;
  const int end = min(begin + a.pairs_block, a.pairs);
  const int halves = a.pairs_block > 16 ? 2 : 1, pass_pairs = 16 * halves;
  const int passes = (end - begin + pass_pairs - 1) / pass_pairs;
  const int windows = (a.k + Format::kWindow - 1) / Format::kWindow;
  const int mine = (windows - warp + kGemvWarps - 1) / kGemvWarps;  // windows warp, warp + 8, ...

  // Rows in units of 16 bytes, so that an address is one multiply-add.
  int copy_pass = 0, copy_window = warp;
  uint32_t row_at[kTiles][2];
  const auto row_units = static_cast<uint32_t>(a.row_bytes / 16);
  const auto find_rows = [&] {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= 2 * halves) break;
      int low, high;
      gemv_rows(a, heads, begin, end, begin + copy_pass * pass_pairs + tile * 8 + g, &low, &high);
      row_at[tile][0] = static_cast<uint32_t>(low) * row_units;
      row_at[tile][1] = static_cast<uint32_t>(high) * row_units;
    }
  };
  const auto copy_group = [&](int half, int slot) {
    if (copy_pass < passes && begin + copy_pass * pass_pairs + half * 16 < end) {
      const uint32_t column = static_cast<uint32_t>(copy_window * 4 + t);
      const bool exists = column < a.row_codes;
      const uint32_t clamped = exists ? column : 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int tile = half * 2 + i / 2, row = i % 2, place = slot * 4 + i;
        copy_async<16>(queue + place * kWarp, a.codes + uint64_t{row_at[tile][row] + clamped} * 16, exists ? 16 : 0);
        if constexpr (kGroupWords > 0) {
          const uint8_t* group = a.codes + uint64_t{row_at[tile][row]} * 16 + a.groups_from;
          copy_async<Format::kGroupBytes>(constants + place * kWarp * kGroupWords,
                                          group + copy_window * Format::kGroupBytes, Format::kGroupBytes);
        }
      }
    }
    commit_copies();
    if (half == halves - 1) {
      copy_window += kGemvWarps;
      if (copy_window >= windows) {
        copy_window = warp, ++copy_pass;
        find_rows();
      }
    }
  };
  find_rows();
  if (mine <= 0) copy_pass = passes;
#pragma unroll 1
  for (int i = 0; i < kDepth; i += 2) {
    copy_group(0, i);
    if (halves == 1) {
      copy_group(0, i + 1);
    } else {
      copy_group(1, i + 1);
    }
  }
  // What x and the epilogue will want: no kernel writes it.
  if (a.gain != nullptr) {
#pragma unroll 1
    for (int k = static_cast<int>(threadIdx.x) * 32; k < a.k; k += kGemvThreads * 32) prefetch_line(a.gain + k);
  }
  if (a.scale != nullptr || a.bias != nullptr) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * 16; i < end - begin; i += kGemvThreads * 16) {
      int low, high;
      gemv_rows(a, heads, begin, end, begin + i, &low, &high);
      if (a.scale != nullptr) prefetch_line(a.scale + low), prefetch_line(a.scale + high);
      if (a.bias != nullptr) prefetch_line(a.bias + low), prefetch_line(a.bias + high);
    }
  }

  wait_for_previous();
  if (a.x_shared) gemv_share_x<Format>(a, x_shared, partial);
  // Columns of tokens that do not exist are products of some other token, and are not stored.
  int64_t x_at[kTokenTiles];
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n)
    x_at[n] = min(n * 8 + g, a.tokens - 1) * (a.x_shared ? int64_t{gemv_x_pitch<Format>(a.k)} : a.x_stride);

  int slot = 0;
  for (int pass = 0; pass < passes; ++pass) {
    float c[kTiles][kTokenTiles][4] = {};
#pragma unroll 1
    for (int window = warp; window < windows; window += kGemvWarps) {
      uint32_t x[kTokenTiles][4 * Format::kChunks];
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int j = 0; j < Format::kChunks; ++j) {
          // Beyond the row, weights are zeros and x is any that exists.
          const int k = min(window * Format::kWindow + Format::chunk_k(j, t), a.k - 8);
          uint4 v;
          if (a.x_shared) {
            v = load<uint4>(x_shared + static_cast<int>(x_at[n]) + k);
          } else {
            v = __ldcg(reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.x) + x_at[n] + k));
            if constexpr (std::is_same_v<X, __half>)
              v = {gemv_f16_pair(v.x), gemv_f16_pair(v.y), gemv_f16_pair(v.z), gemv_f16_pair(v.w)};
          }
#pragma unroll
          for (int e = 0; e < 4; ++e) x[n][4 * j + e] = word_of(v, e);
        }
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        if (half >= halves) break;
        wait_for_copies<kDepth - 1>();
        if (begin + pass * pass_pairs + half * 16 < end) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {  // a tile that does not exist is computed, and not stored
            const int place = slot * 4 + 2 * i;
            const uint4 low = queue[place * kWarp], high = queue[(place + 1) * kWarp];
            uint32_t low_group[kGroupWords + 1], high_group[kGroupWords + 1];
#pragma unroll
            for (int word = 0; word < kGroupWords; ++word) {
              low_group[word] = constants[place * kWarp * kGroupWords + word];
              high_group[word] = constants[(place + 1) * kWarp * kGroupWords + word];
            }
            Format::template multiply<kTokenTiles>(c[half * 2 + i], low, high, low_group, high_group, x);
          }
        }
        copy_group(half, slot);
        slot = slot + 1 == kDepth ? 0 : slot + 1;
      }
    }

    // Sums lie [warp][tile][token tile and pair][g].
    if (pass > 0) __syncthreads();  // those of before are read
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const float(&v)[4] = c[tile][n];
        if (n * 4 + t < token_pairs)
          sums[((warp * kTiles + tile) * token_pairs + n * 4 + t) * 8 + g] = {v[0], v[1], v[2], v[3]};
      }
    // A thread has one pair of rows and two tokens.
    const int unit = static_cast<int>(threadIdx.x), units = kTiles * token_pairs * 8;
    const int tile = unit / (8 * token_pairs), token = (unit / 8 - tile * token_pairs) * 2;
    const int p = begin + pass * pass_pairs + tile * 8 + unit % 8;
    const bool exists = tile < 2 * halves && p < end;
    int low = 0, high = 0;
    float low_scale = 1, high_scale = 1, low_bias = 0, high_bias = 0, residual[2][2] = {};
    int position[2] = {};
    int64_t cache_slot[2] = {};
    if (exists) {
      gemv_rows(a, heads, begin, end, p, &low, &high);
      if (a.scale != nullptr) low_scale = a.scale[low], high_scale = a.scale[high];
      if (a.bias != nullptr) low_bias = a.bias[low], high_bias = a.bias[high];
      if (a.kind == GemvWork::Pairs::kHeads) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (token + i < a.tokens)
            position[i] = heads.positions[token + i], cache_slot[i] = heads.pools.slots[token + i];
      } else if (a.residual != nullptr) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (token + i < a.tokens)
            residual[i][0] = gemv_residual(a, token + i, low), residual[i][1] = gemv_residual(a, token + i, high);
      }
    }
    __syncthreads();
    if (!exists) continue;
    float4 sum{};
#pragma unroll
    for (int i = 0; i < kGemvWarps; ++i) {
      const float4 more = sums[i * units + unit];
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    const float factor = std::is_same_v<X, __half> && a.gain == nullptr ? 1.f / kGemvF16Scale : 1.f;
#pragma unroll 1
    for (int i = 0; i < 2 && token + i < a.tokens; ++i) {
      const float of_token = a.token_scale != nullptr ? factor * a.token_scale[token + i] : factor;
      const float one = fmaf(sum.x * of_token, low_scale, low_bias);
      const float two = fmaf(sum.z * of_token, high_scale, high_bias);
      if (a.kind == GemvWork::Pairs::kRows) {
        // The last block's second row may not exist: it is then the same as the last that does.
        gemv_store(a, token + i, low, one + residual[0][0]);
        if (high != low) gemv_store(a, token + i, high, two + residual[0][1]);
      } else if (a.kind == GemvWork::Pairs::kHalves) {
        gemv_store(a, token + i, low, activate(a.act, one) * two);
      } else {
        gemv_finish_heads(a, heads, token + i, position[0], cache_slot[0], low, high, one, two);
      }
      // Registers have no index: the second token's become the first's.
      sum.x = sum.y, sum.z = sum.w;
      residual[0][0] = residual[1][0], residual[0][1] = residual[1][1];
      position[0] = position[1], cache_slot[0] = cache_slot[1];
    }
  }
}

template <class Format, int kTokenTiles>
int gemv_launch(const CudaTarget& target, const GemvArgs& a, const GemvHeads& heads) {
  const size_t shared = GemvShape<Format>::shared_bytes(a.tokens) +
                        (a.x_shared ? sizeof(typename Format::X) * a.tokens * gemv_x_pitch<Format>(a.k) : 0);
  const auto kernel = gemv_kernel<Format, kTokenTiles>;
  if (const auto status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
      status != cudaSuccess)
    return status;
  return launch(target, kernel, static_cast<unsigned>(ceil_div(a.pairs, a.pairs_block)), kGemvThreads, shared, a,
                heads);
}

template <class Format>
int gemv_as(const CudaTarget& target, const GemvWork& work) {
  const GemvWeight& w = work.weight;
  GemvArgs a{};
  a.codes = static_cast<const uint8_t*>(w.codes), a.row_bytes = w.row_bytes, a.groups_from = w.groups_from;
  a.row_codes = static_cast<uint32_t>(Format::kGroupBytes > 0 ? ceil_div(w.k, Format::kWindow) * 4
                                                              : ceil_div(w.k * Format::kBits, 128));
  a.rows = static_cast<int>(w.rows), a.k = static_cast<int>(w.k), a.tokens = static_cast<int>(work.x.rows);
  const bool plain = work.pairs == GemvWork::Pairs::kRows;
  a.pairs = static_cast<int>(plain ? ceil_div(w.rows, 2) : w.rows / 2);
  a.pairs_block = static_cast<int>(ceil_div(a.pairs, target.multiprocessors));
  a.x = work.x.data, a.x_stride = work.x.stride;
  a.gain = work.gain, a.eps = work.eps, a.scale = work.scale, a.token_scale = work.token_scale, a.bias = work.bias;
  a.x_shared = gemv_shares_x(work);
  a.kind = work.pairs, a.act = work.act;
  a.residual = work.residual.data, a.residual_stride = work.residual.stride;
  a.residual_narrow = work.residual.dtype == DType::kBF16, a.out_narrow = work.out.dtype == DType::kBF16;
  a.out = work.out.data, a.out_stride = work.out.stride;
  GemvHeads heads{};
  if (work.pairs == GemvWork::Pairs::kHeads)
    heads = {work.positions, work.heads, work.head_dim, work.pools, *work.rope};
  return a.tokens > 8 ? gemv_launch<Format, 2>(target, a, heads) : gemv_launch<Format, 1>(target, a, heads);
}

}  // namespace bolide::cuda
