// What .cu files share: launching, 16-byte accesses, conversions, sums over warps and blocks. Only CUDA's own headers,
// which keeps a .cu file at a few seconds.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <nv/target>

#include <cstdint>

#include "device/cuda/launch_watch_parts.h"
#include "kernels/common/cuda_target.h"

namespace bolide::cuda {

inline constexpr int kWarp = 32;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How blocks of a launch belong together.
struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
  int cluster = 1;       // blocks that are neighbours in x
  bool at_once = false;  // all blocks start, or none
};

// Launches kernel(arguments...). Every kernel launched so must call wait_for_previous() before it touches what other
// kernels write or read. Returns a cudaError_t; an empty grid is no error.
template <class... Parameters, class... Arguments>
int launch_shape(const CudaTarget& target, void (*kernel)(Parameters...), const LaunchShape& shape,
                 Arguments&&... arguments) {
  const dim3 grid = shape.grid, block = shape.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  constexpr int kPortable = 8;
  if (shape.cluster > kPortable) {
    const auto status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (status != cudaSuccess) return status;
  }
  if (target.watch != nullptr) {
    const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
    target.watch->see(target.watch->to,
                      {reinterpret_cast<const void*>(kernel), blocks, static_cast<int>(block.x * block.y * block.z),
                       shape.cluster, shape.shared_bytes});
  }
  cudaLaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (target.dependent_launch()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (shape.at_once) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = target.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

template <class... Parameters, class... Arguments>
int launch(const CudaTarget& target, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
           Arguments&&... arguments) {
  return launch_shape(target, kernel, {grid, block, shared_bytes}, static_cast<Arguments&&>(arguments)...);
}
template <class... Parameters, class... Arguments>
int launch_clusters(const CudaTarget& target, void (*kernel)(Parameters...), dim3 grid, dim3 block, int cluster,
                    size_t shared_bytes, Arguments&&... arguments) {
  return launch_shape(target, kernel, {grid, block, shared_bytes, cluster}, static_cast<Arguments&&>(arguments)...);
}
// A kernel whose blocks wait for each other: all of them must fit at once. Kernels of several streams that do so could
// each have some of the multiprocessors and wait for the others for ever, so all blocks start or none, unless the
// target is alone. That costs 1 to 3 % of a step: while the kernel in front has one multiprocessor, none begins to
// copy.
template <class... Parameters, class... Arguments>
int launch_together(const CudaTarget& target, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                    Arguments&&... arguments) {
  return launch_shape(target, kernel, {grid, block, shared_bytes, 1, !target.alone},
                      static_cast<Arguments&&>(arguments)...);
}

// Waits until the kernel before this one has ended and its writes can be seen. What does not depend on it (weights) may
// be fetched earlier.
__device__ __forceinline__ void wait_for_previous() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" :: : "memory");))
}
// Lets the next kernel's blocks start as this one's leave room; they still wait for its end.
__device__ __forceinline__ void let_next_start() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" :: : "memory");))
}

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

// Rounds to nearest, ties to even.
template <class T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
  return __float2half_rn(x);
}

// kCount neighbours, moved by one access.
template <class T, int kCount = 16 / sizeof(T)>
struct alignas(sizeof(T) * kCount) Pack {
  T value[kCount];
};

template <class P, class T>
__device__ __forceinline__ P load(const T* p) {
  return *reinterpret_cast<const P*>(p);
}
template <class P, class T>
__device__ __forceinline__ void store(T* p, const P& pack) {
  *reinterpret_cast<P*>(p) = pack;
}
// Of memory that no kernel writes and that is read once: weights. 16 bytes, past L1.
template <class T>
__device__ __forceinline__ Pack<T> load_weights(const T* p) {
  Pack<T> pack;
  auto* w = reinterpret_cast<uint32_t*>(&pack);
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "l"(p));
  return pack;
}

// True if rows of these matrices can be moved `bytes` at a time: on the host.
inline bool is_aligned(const void* data, int64_t stride_bytes, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0 && stride_bytes % bytes == 0;
}

// The sum over the warp, in every lane; its order is fixed.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// The sum over a block of up to 1024 threads (a multiple of 32), in every thread. `scratch`: 32 floats of shared
// memory, free again after the next __syncthreads() of all.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? scratch[lane] : 0.f);
  __syncthreads();
  return x;
}

}  // namespace bolide::cuda
