// A cluster of blocks as one: blocks of a cluster write to each other's shared memory, meet at barriers and add numbers
// up. Before sm_90 there is none of it: clusters are of one block then.
#pragma once

#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda {

using Mass = unsigned long long;

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kClusterMax = 16;
constexpr int kWords = 12;  // that are combined at the same time

static_assert(kWarps <= kWarp && kWords <= kWarps && kClusterMax <= kWarp);

__device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }

// A barrier of all threads of the cluster in two halves.
__device__ __forceinline__ void cluster_arrive() {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                    (__syncwarp(); asm volatile("barrier.cluster.arrive.release.aligned;" :: : "memory");),
                    (__syncthreads();))
}
__device__ __forceinline__ void cluster_wait() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (__syncwarp(); asm volatile("barrier.cluster.wait.acquire.aligned;" :: : "memory");))
}
__device__ __forceinline__ void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

// *here = value in block `rank` of the cluster; `here` is in shared memory. Seen there after the next barrier.
__device__ __forceinline__ void store_to(int rank, Mass* here, Mass value) {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                    (uint32_t there; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(
                                                      static_cast<uint32_t>(__cvta_generic_to_shared(here))),
                                                  "r"(rank));
                     asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(value) : "memory");),
                    (*here = value;))
}

// Where the warps of a block and the blocks of a cluster leave numbers for each other.
struct Board {
  Mass of_warp[kWords][kWarps];
  Mass of_block[2][kWords][kClusterMax];  // in turn: others may write the next numbers while these are read
  Mass total[kWords];
  int turn;  // of the next exchange; 0 at first
};

// This block's place; the size is a power of two.
struct Cluster {
  int rank, size;
};

// The larger one, or the sum.
__device__ __forceinline__ Mass combine(bool largest, Mass a, Mass b) { return largest ? (a > b ? a : b) : a + b; }

// board.total of what the warps left in board.of_warp, over the cluster: the largest of words whose bit is set in
// `largest`, the sums of others. Not inlined: instructions that a launch meets for the first time are slow.
__device__ __noinline__ void exchange(Board& board, Cluster cluster, int words, uint32_t largest) {
  const int warp = thread() / kWarp, lane = thread() % kWarp;
  const auto over_lanes = [by_largest = (largest >> warp & 1) != 0](Mass value, int lanes) {
#pragma unroll 1
    for (int step = lanes / 2; step > 0; step /= 2)
      value = combine(by_largest, value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
  };
  __syncthreads();
  const int turn = board.turn;
  if (warp < words) {
    const Mass mine = over_lanes(board.of_warp[warp][lane % kWarps], kWarps);
    if (lane < cluster.size) store_to(lane, &board.of_block[turn][warp][cluster.rank], mine);
  }
  cluster_barrier();
  if (warp < words) {
    const Mass all = over_lanes(board.of_block[turn][warp][lane % cluster.size], cluster.size);
    if (lane == 0) board.total[warp] = all;
  }
  if (thread() == 0) board.turn = turn ^ 1;
  __syncthreads();
}

// Leaves all threads' values combined in board.total; those of each block are in of_block[turn ^ 1].
template <int kCount>
__device__ __forceinline__ void over_cluster(Board& board, Cluster cluster, Mass (&value)[kCount], uint32_t largest) {
  static_assert(kCount <= kWords);
#pragma unroll 1
  for (int step = kWarp / 2; step > 0; step /= 2)
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      value[j] = combine((largest >> j & 1) != 0, value[j], __shfl_xor_sync(0xffffffffu, value[j], step));
  if (thread() % kWarp == 0) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) board.of_warp[j][thread() / kWarp] = value[j];
  }
  exchange(board, cluster, kCount, largest);
}
__device__ __forceinline__ Mass over_cluster(Board& board, Cluster cluster, Mass value, bool largest) {
  Mass values[1] = {value};
  over_cluster(board, cluster, values, largest ? 1 : 0);
  return board.total[0];
}

}  // namespace bolide::cuda
