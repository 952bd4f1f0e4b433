// Reads memory once, 16 bytes a thread and step, four loads under way: bound by memory. A block's sum is stored only if
// it is a number that random data does not give, so that the loads stay.
#include <cuda_runtime.h>

#include "device/cuda/gpu_rates_parts.h"

namespace bolide {
namespace {

constexpr int kThreads = 512;

__global__ void __launch_bounds__(kThreads) read_all(const uint4* data, size_t count, unsigned* out) {
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  unsigned sum = 0;
  size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = __ldcs(data + i + static_cast<size_t>(j) * stride);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < count; i += stride) sum += data[i].x;
  if (sum == 0x9e3779b9u) *out = sum;
}

}  // namespace

int gpu_read_all(CUstream_st* stream, const void* data, size_t bytes, void* out, int multiprocessors) {
  read_all<<<4 * multiprocessors, kThreads, 0, stream>>>(static_cast<const uint4*>(data), bytes / sizeof(uint4),
                                                         static_cast<unsigned*>(out));
  return static_cast<int>(cudaGetLastError());
}

}  // namespace bolide
