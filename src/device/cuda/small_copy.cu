// Copies of some kilobytes by a kernel: between other kernels it costs a microsecond or two, where the copy engine,
// which has to be handed the work and to hand it back, costs several. The host's memory is read past the caches.
#include <cuda_runtime.h>

#include <cstdint>

#include "device/cuda/small_copy_parts.h"

namespace bolide {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) copy_all(T* to, const T* from, size_t count, bool fenced) {
  const size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  to[i] = __ldcv(from + i);
  if (fenced) __threadfence();
}

template <class T>
int copy_as(CUstream_st* stream, void* to, const void* from, size_t bytes, bool fenced) {
  const size_t count = bytes / sizeof(T), blocks = (count + kThreads - 1) / kThreads;
  copy_all<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(static_cast<T*>(to), static_cast<const T*>(from),
                                                                      count, fenced);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

int small_copy(CUstream_st* stream, void* to, const void* from, size_t bytes, bool fenced) {
  if (bytes == 0) return 0;
  const auto aligned = [&](size_t to_what) {
    return (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % to_what == 0;
  };
  if (aligned(sizeof(uint4))) return copy_as<uint4>(stream, to, from, bytes, fenced);
  if (aligned(sizeof(uint32_t))) return copy_as<uint32_t>(stream, to, from, bytes, fenced);
  return copy_as<unsigned char>(stream, to, from, bytes, fenced);
}

}  // namespace bolide
