// What streaming products (gemv_cuda.cuh) do with the sums of a pair of rows.
#pragma once

#include "kernels/act/act_cuda.cuh"
#include "kernels/common/cuda_f8.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/linear/gemv_cuda_parts.h"
#include "kernels/rope/rope_cuda.cuh"

namespace bolide::cuda {

struct GemvArgs {
  const uint8_t* codes;
  int64_t row_bytes, groups_from;
  int rows, k, tokens;
  int pairs, pairs_block;  // of the weight, of a block
  int segments;            // of a row
  const void* x;
  int64_t x_stride;
  const float *gain, *scale, *token_scale, *bias;
  float eps;
  bool rounds;  // x to codes of f8e4m3
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

// Products one after the other in one kernel.
template <int kMost>
struct GemvChain {
  GemvArgs product[kMost];
  GemvHeads heads;     // of the one product that has them
  int count, depth;    // depth: stages of the ring
  int x_bytes;         // of the largest x
  uint32_t* barriers;  // [count]: blocks that have finished a product; the last: that have finished all
};

template <int kMost>
__device__ __forceinline__ int gemv_count(const GemvChain<kMost>& chain) {
  return kMost == 1 ? 1 : chain.count;
}
// Pairs that are this block's.
__device__ __forceinline__ int gemv_begin(const GemvArgs& a) { return static_cast<int>(blockIdx.x) * a.pairs_block; }
__device__ __forceinline__ int gemv_end(const GemvArgs& a) { return min(gemv_begin(a) + a.pairs_block, a.pairs); }

// Adds a block to a counter, so that whoever reads its result sees what this block's threads wrote before they met.
__device__ __forceinline__ void count_up(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ uint32_t count_of(const uint32_t* counter) {
  uint32_t count;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  return count;
}

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

// Past level 1: in a chain, other multiprocessors have just written it.
__device__ __forceinline__ float gemv_residual(const GemvArgs& a, int token, int row) {
  const int64_t at = token * a.residual_stride + row;
  return a.residual_narrow ? widen(__ldcg(static_cast<const __nv_bfloat16*>(a.residual) + at))
                           : __ldcg(static_cast<const float*>(a.residual) + at);
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

// A pair of rows and a token, with all that the end needs besides the sums: read before they are there.
struct GemvUnit {
  int low, high, token;
  bool exists;
  float low_scale = 1, high_scale = 1, low_bias = 0, high_bias = 0, token_scale = 1;
  // kRows: residuals. kHeads: cosine and sine.
  float one = 0, two = 0;
  int group = -1;  // kHeads: of k, then of v; negative for q
  int64_t element = -1;

  // What no kernel writes.
  __device__ __forceinline__ void find(const GemvArgs& a, const GemvHeads& h, int begin, int end, int p, int t) {
    token = t, exists = p < end && t < a.tokens;
    if (!exists) return;
    gemv_rows(a, h, begin, end, p, &low, &high);
    if (a.scale != nullptr) low_scale = a.scale[low], high_scale = a.scale[high];
    if (a.bias != nullptr) low_bias = a.bias[low], high_bias = a.bias[high];
  }
  // What others do.
  __device__ __forceinline__ void read(const GemvArgs& a, const GemvHeads& h) {
    if (!exists) return;
    if (a.token_scale != nullptr) token_scale = a.token_scale[token];
    if (a.kind == GemvWork::Pairs::kRows) {
      if (a.residual != nullptr) one = gemv_residual(a, token, low), two = gemv_residual(a, token, high);
      return;
    }
    if (a.kind == GemvWork::Pairs::kHalves) return;
    const int head = low / h.head_dim, dim = low - head * h.head_dim;
    group = head - h.heads;
    one = 1, two = 0;
    if (group < h.pools.kv_heads && dim < h.rope.half) {
      const int position = h.positions[token];
      int length = 0;
      if (h.rope.kind != RopeParameters::Kind::kFixed)
        length = h.rope.rope_length[sequence_of(h.rope.cu_tokens, h.rope.sequences, token)];
      cos_sin(static_cast<float>(position) * frequency(h.rope, dim, length), &one, &two);
      one *= h.rope.attention_factor, two *= h.rope.attention_factor;
    }
    if (group < 0) return;
    const int64_t slot = h.pools.slots[token];
    if (slot < 0) return;
    const int g = group < h.pools.kv_heads ? group : group - h.pools.kv_heads;
    const auto place = static_cast<uint64_t>(slot);
    const uint64_t tokens = static_cast<uint32_t>(h.pools.block_tokens);
    const uint64_t block =
        place >> 32 == 0 ? static_cast<uint32_t>(place) / static_cast<uint32_t>(tokens) : place / tokens;
    const auto offset = static_cast<int64_t>(place - block * tokens);
    element = ((static_cast<int64_t>(block) * h.pools.kv_heads + g) * h.pools.block_tokens + offset) * h.head_dim + dim;
  }
  __device__ __forceinline__ void finish(const GemvArgs& a, const GemvHeads& h, float2 sum) const {
    const float first = fmaf(sum.x * token_scale, low_scale, low_bias);
    const float second = fmaf(sum.y * token_scale, high_scale, high_bias);
    if (a.kind == GemvWork::Pairs::kRows) {
      gemv_store(a, token, low, first + one);
      // The last block's second row may not exist: it is then the same as the last that does.
      if (high != low) gemv_store(a, token, high, second + two);
      return;
    }
    if (a.kind == GemvWork::Pairs::kHalves) {
      gemv_store(a, token, low, activate(a.act, first) * second);
      return;
    }
    const float low_value = fmaf(first, one, -(second * two)), high_value = fmaf(second, one, first * two);
    if (group < 0) {
      gemv_store(a, token, low, low_value);
      gemv_store(a, token, high, high_value);
    } else if (element >= 0) {
      void* pool = group < h.pools.kv_heads ? h.pools.k : h.pools.v;
      gemv_cache(h.pools, pool, element, low_value);
      gemv_cache(h.pools, pool, element + high - low, high_value);
    }
  }
};

}  // namespace bolide::cuda
