// How the decode attention of GPUs is cut up, by sizes alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention_cuda_parts.h"

namespace bolide::cuda {

// True if the work is of attention_decode's kind; head_dim, group and the GPU are its row's to check.
inline bool can_decode(const AttentionWork& work) {
  const auto whole = [](const void* p, int64_t bytes) { return (reinterpret_cast<uintptr_t>(p) | bytes) % 16 == 0; };
  const int64_t out_bytes = work.out.dtype == DType::kF32 ? 4 : 2;
  return (work.pool == DType::kBF16 || work.pool == DType::kF8E4M3) && work.q.dtype == DType::kBF16 &&
         whole(work.q.data, work.q.stride * 2) && whole(work.out.data, work.out.stride * out_bytes) &&
         whole(work.k, 0) && whole(work.v, 0) && work.block_tokens >= 16 &&
         (work.block_tokens & (work.block_tokens - 1)) == 0;
}

// Half of the multiprocessors at least, a block of eight warps each, if the longest context has work for them: clusters
// of larger grids do not all find room at once. Beyond that blocks of four warps, of which three fit. Where chains of
// products run in front and behind (gemv_cuda.cuh) there are twice as many blocks of four, which fit beside a chain's:
// they begin before it has ended, and the next one copies weights before they have.
inline DecodeShape decode_shape(const AttentionWork& work, int multiprocessors) {
  constexpr int kSplitsMax = 16, kTileHeads = 8, kTile = 16;
  constexpr int64_t kChainTokensMax = 4;
  const int64_t units = std::max<int64_t>(1, work.q.rows * work.kv_heads);
  const int64_t longest = int64_t{work.block_table_stride} * work.block_tokens;
  DecodeShape shape{1, 4, 1};
  if (units <= multiprocessors && work.heads / work.kv_heads <= kTileHeads && longest > shape.warps * kTile)
    shape.warps = 8;
  while (shape.splits < kSplitsMax && units * shape.splits * 4 <= multiprocessors &&
         int64_t{shape.splits} * shape.warps * kTile < longest)
    shape.splits *= 2;
  if (shape.warps == 8 && work.q.rows <= kChainTokensMax && shape.splits < kSplitsMax &&
      units * shape.splits * 2 <= multiprocessors)
    shape.warps = 4, shape.splits *= 2;
  return shape;
}

inline int attention_decode(const CudaTarget& target, const AttentionWork& work) {
  const DecodeShape shape = decode_shape(work, target.multiprocessors);
  return work.pool == DType::kBF16 ? attention_decode_bf16(target, work, shape)
                                   : attention_decode_f8(target, work, shape);
}

}  // namespace bolide::cuda
