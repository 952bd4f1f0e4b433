// Launching streaming products (gemv_cuda.cuh): included by a .cu file for each format.
#pragma once

#include <algorithm>

#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

// Shared memory that a chain's block leaves to one of attention.
inline constexpr int kGemvChainLeaves = 24 << 10;

template <class Format>
GemvArgs gemv_args(const CudaTarget& target, const GemvWork& work) {
  const GemvWeight& w = work.weight;
  GemvArgs a{};
  a.codes = static_cast<const uint8_t*>(w.codes), a.row_bytes = w.row_bytes, a.groups_from = w.groups_from;
  a.rows = static_cast<int>(w.rows), a.k = static_cast<int>(w.k), a.tokens = static_cast<int>(work.x.rows);
  a.segments = static_cast<int>(ceil_div(w.k, Format::kWindow * kGemvWarps));
  const bool plain = work.pairs == GemvWork::Pairs::kRows;
  a.pairs = static_cast<int>(plain ? ceil_div(w.rows, 2) : w.rows / 2);
  // Whole pairs evenly, though some multiprocessors may then have none: a remainder spread over all is slower.
  a.pairs_block = static_cast<int>(ceil_div(a.pairs, target.multiprocessors));
  a.x = work.x.data, a.x_stride = work.x.stride;
  a.gain = work.gain, a.eps = work.eps, a.scale = work.scale, a.token_scale = work.token_scale, a.bias = work.bias;
  a.rounds = work.rounds;
  a.kind = work.pairs, a.act = work.act;
  a.residual = work.residual.data, a.residual_stride = work.residual.stride;
  a.residual_narrow = work.residual.dtype == DType::kBF16, a.out_narrow = work.out.dtype == DType::kBF16;
  a.out = work.out.data, a.out_stride = work.out.stride;
  return a;
}

template <class Shape>
int gemv_launch(const CudaTarget& target, const GemvWork* works, int count) {
  using Format = typename Shape::Format;
  GemvChain<Shape::kMost> chain{};
  int stages = 0, blocks = 0;
  for (int i = 0; i < count; ++i) {
    GemvArgs& a = chain.product[i] = gemv_args<Format>(target, works[i]);
    if (a.pairs > 0) {
      blocks = std::max(blocks, static_cast<int>(ceil_div(a.pairs, a.pairs_block)));
      stages += (a.pairs_block + kGemvPairs - 1) / kGemvPairs * a.segments;
    }
    chain.x_bytes = std::max(chain.x_bytes, Shape::x_bytes(a.tokens, a.k));
    if (works[i].pairs == GemvWork::Pairs::kHeads)
      chain.heads = {works[i].positions, works[i].heads, works[i].head_dim, works[i].pools, *works[i].rope};
  }
  if (blocks == 0) return cudaSuccess;
  chain.count = count, chain.barriers = target.barriers;
  const int fixed = chain.x_bytes + Shape::sums_bytes(chain.product[0].tokens) + Shape::kEnd;
  // Two blocks to a multiprocessor, if registers allow it and if that leaves a ring worth the name: the next kernel's
  // copies then begin before this one ends. A chain's ring is larger: it is to last while all blocks wait for each
  // other.
  constexpr int kHalfOfShared = (228 - 2) / 2 << 10, kFewest = 3, kLeaves = Shape::kMost > 1 ? kGemvChainLeaves : 0;
  const bool half = Shape::kMost == 1 && (Shape::kTokenTiles == 1 || !Shape::kHasXRing);
  int depth = half ? (kHalfOfShared - fixed) / Shape::kStage : 0;
  if (depth < kFewest) depth = (static_cast<int>(target.shared_bytes_block) - kLeaves - fixed) / Shape::kStage;
  chain.depth = std::min({depth, Shape::kDepthMax, stages});
  if (chain.depth < 1) return cudaErrorInvalidValue;
  const size_t shared = static_cast<size_t>(fixed + chain.depth * Shape::kStage);
  const auto kernel = [] {
    if constexpr (Shape::kMost > 1) {
      return gemv_chain_kernel<Shape>;
    } else {
      return gemv_kernel<Shape>;
    }
  }();
  if (const auto status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
      status != cudaSuccess)
    return status;
  const auto grid = static_cast<unsigned>(blocks);
  return Shape::kMost > 1 ? launch_together(target, kernel, grid, Shape::kThreads, shared, chain)
                          : launch(target, kernel, grid, Shape::kThreads, shared, chain);
}

// Of one work or a chain of some.
template <class Format>
int gemv_as(const CudaTarget& target, const GemvWork* works, int count) {
  if constexpr (Format::kChains)
    if (count > 1) return gemv_launch<GemvShape<Format, 1, true, kGemvChainMost>>(target, works, count);
  const bool shares = gemv_shares_x(*works), many = works->x.rows > 8;
  if (shares)
    return many ? gemv_launch<GemvShape<Format, 2, true, 1>>(target, works, 1)
                : gemv_launch<GemvShape<Format, 1, true, 1>>(target, works, 1);
  return many ? gemv_launch<GemvShape<Format, 2, false, 1>>(target, works, 1)
              : gemv_launch<GemvShape<Format, 1, false, 1>>(target, works, 1);
}

}  // namespace bolide::cuda
