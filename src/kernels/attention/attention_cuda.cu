// A block has one token and one query head. Eight lanes share a key: a warp looks at four keys at once, a block at
// kGroups, and each group of eight keeps its own running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867), which
// are merged at the end in fixed order. Scores are never stored. Query heads that share keys run side by side, and find
// them in L1 and L2: bound by their bandwidth.
#include "kernels/attention/attention_cuda_parts.h"
#include "kernels/common/cuda_f8.cuh"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 256, kLanes = 8, kGroups = kThreads / kLanes, kVector = 8;

struct Arguments {
  const void* q;
  void* out;
  int64_t q_stride, out_stride;
  bool narrow_q, narrow_out;
  int heads_per_kv, kv_heads, dim;
  float scale, softcap;
  int window;  // 0: none
  const void *k, *v;
  int block_tokens;
  const int32_t *cu_tokens, *context, *block_table;
  int block_table_stride, sequences;
};

// Elements [at, at + 8) of a head's row, zeros beyond dim.
template <class T, bool kWide>
__device__ __forceinline__ void read8(const T* row, int at, int dim, float (&out)[kVector]) {
  if constexpr (kWide) {
    constexpr int kCount = sizeof(T) == 1 ? kVector : 16 / sizeof(T);
    if (at < dim) {
#pragma unroll
      for (int j = 0; j < kVector; j += kCount) {
        const auto pack = load<Pack<T, kCount>>(row + at + j);
#pragma unroll
        for (int i = 0; i < kCount; ++i) out[j + i] = widen(pack.value[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) out[i] = 0;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) out[i] = at + i < dim ? widen(row[at + i]) : 0.f;
  }
}

// A running softmax over some of the keys: the largest score, the sum of exp(score - largest) and, in the caller's
// registers, that of the values.
__device__ __forceinline__ float rescale(float from, float to) { return from == to ? 1.f : expf(from - to); }

// kChunks: how many times 8 lanes by 8 elements a head has. kWide: rows of the pools can be read 16 bytes at a time.
template <class Pool, int kChunks, bool kWide>
__global__ void __launch_bounds__(kThreads) attention_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ float shared[];  // [kGroups] largest, [kGroups] totals, [kGroups, dim] sums
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes, group = thread / kLanes;
  const int head = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y);
  const int dim = a.dim, kv_head = head / a.heads_per_kv;
  wait_for_previous();
  let_next_start();

  int sequence = 0;  // the last that starts at or before the token
  for (int high = a.sequences; high - sequence > 1;) {
    const int middle = (sequence + high) / 2;
    if (a.cu_tokens[middle] <= token) {
      sequence = middle;
    } else {
      high = middle;
    }
  }
  const int behind = a.cu_tokens[sequence + 1] - token;  // tokens of the sequence from this one on; none: padding
  const int end = behind > 0 ? a.context[sequence] - behind + 1 : 0;
  const int begin = a.window > 0 && end > a.window ? end - a.window : 0;
  const int32_t* blocks = a.block_table + int64_t{sequence} * a.block_table_stride;

  float q[kChunks][kVector], sum[kChunks][kVector];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int at = (c * kLanes + lane) * kVector;
    const int64_t from = token * a.q_stride + int64_t{head} * dim;
    if (a.narrow_q) {
      read8<__nv_bfloat16, false>(static_cast<const __nv_bfloat16*>(a.q) + from, at, dim, q[c]);
    } else {
      read8<float, false>(static_cast<const float*>(a.q) + from, at, dim, q[c]);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[c][i] = 0;
  }
  float largest = -INFINITY, total = 0;
  // Whole warps go round together, for the shuffles: a group that is past the end looks at the last key again.
  const int first_of_warp = group / (kWarp / kLanes) * (kWarp / kLanes);
  for (int base = begin + first_of_warp; base < end; base += kGroups) {
    const int wanted = base + group - first_of_warp, j = wanted < end ? wanted : end - 1;
    const int block = j / a.block_tokens;
    const int64_t row = (int64_t{blocks[block]} * a.kv_heads + kv_head) * a.block_tokens + (j - block * a.block_tokens);
    const Pool* k = static_cast<const Pool*>(a.k) + row * dim;
    const Pool* v = static_cast<const Pool*>(a.v) + row * dim;
    float values[kChunks][kVector];
    float score = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      float key[kVector];
      read8<Pool, kWide>(k, (c * kLanes + lane) * kVector, dim, key);
      read8<Pool, kWide>(v, (c * kLanes + lane) * kVector, dim, values[c]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) score = fmaf(q[c][i], key[i], score);
    }
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) score += __shfl_xor_sync(0xffffffffu, score, step);
    score *= a.scale;
    if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
    if (wanted >= end) continue;
    const float most = fmaxf(largest, score), old = rescale(largest, most), weight = rescale(score, most);
    total = fmaf(total, old, weight);
    largest = most;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum[c][i] = fmaf(weight, values[c][i], sum[c][i] * old);
  }

  float *largests = shared, *totals = shared + kGroups, *sums = shared + 2 * kGroups;
  if (lane == 0) largests[group] = largest, totals[group] = total;
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const int at = (c * kLanes + lane) * kVector + i;
      if (at < dim) sums[group * dim + at] = sum[c][i];
    }
  __syncthreads();
  float most = -INFINITY, all = 0;
  for (int g = 0; g < kGroups; ++g) most = fmaxf(most, largests[g]);
  for (int g = 0; g < kGroups; ++g) all = fmaf(totals[g], totals[g] == 0 ? 0.f : rescale(largests[g], most), all);
  for (int at = thread; at < dim; at += kThreads) {
    float result = 0;
    for (int g = 0; g < kGroups; ++g)
      if (totals[g] != 0) result = fmaf(sums[g * dim + at], rescale(largests[g], most), result);
    if (end > begin) result /= all;
    const int64_t to = token * a.out_stride + int64_t{head} * dim + at;
    if (a.narrow_out) {
      static_cast<__nv_bfloat16*>(a.out)[to] = narrow<__nv_bfloat16>(result);
    } else {
      static_cast<float*>(a.out)[to] = result;
    }
  }
}

template <class Pool, int kChunks>
int attention_as(const CudaTarget& target, const AttentionWork& work, const Arguments& a) {
  const bool wide = a.dim % kVector == 0 && is_aligned(a.k, 0, 16) && is_aligned(a.v, 0, 16);
  const dim3 grid(static_cast<unsigned>(work.heads), static_cast<unsigned>(work.q.rows));
  return launch(target, wide ? attention_kernel<Pool, kChunks, true> : attention_kernel<Pool, kChunks, false>, grid,
                kThreads, sizeof(float) * static_cast<size_t>(kGroups * (a.dim + 2)), a);
}

template <class Pool>
int attention_of(const CudaTarget& target, const AttentionWork& work, const Arguments& a) {
  constexpr int kChunk = kLanes * kVector;
  if (a.dim <= kChunk) return attention_as<Pool, 1>(target, work, a);
  if (a.dim <= 2 * kChunk) return attention_as<Pool, 2>(target, work, a);
  return attention_as<Pool, 4>(target, work, a);
}

}  // namespace

int attention(const CudaTarget& target, const AttentionWork& work) {
  if (work.head_dim > kAttentionDimMax) return cudaErrorInvalidValue;
  Arguments a{};
  a.q = work.q.data, a.q_stride = work.q.stride, a.narrow_q = work.q.dtype == DType::kBF16;
  a.out = work.out.data, a.out_stride = work.out.stride, a.narrow_out = work.out.dtype == DType::kBF16;
  a.heads_per_kv = work.heads / work.kv_heads, a.kv_heads = work.kv_heads, a.dim = work.head_dim;
  a.scale = work.scale, a.softcap = work.softcap;
  a.window = static_cast<int>(work.window < INT32_MAX ? work.window : 0);
  a.k = work.k, a.v = work.v, a.block_tokens = work.block_tokens;
  a.cu_tokens = work.cu_tokens, a.context = work.context;
  a.block_table = work.block_table, a.block_table_stride = work.block_table_stride, a.sequences = work.sequences;
  switch (work.pool) {
    case DType::kBF16: return attention_of<__nv_bfloat16>(target, work, a);
    case DType::kF8E4M3: return attention_of<F8E4M3>(target, work, a);
    default: return attention_of<float>(target, work, a);
  }
}

}  // namespace bolide::cuda
