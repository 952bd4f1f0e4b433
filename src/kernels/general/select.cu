// The greatest or least along an axis: where it is, and the first few in order.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

// A warp a row; elements `inner` apart.
__global__ void __launch_bounds__(256) arg_kernel(const __grid_constant__ ArgJob job) {
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % kWarp;
  const int64_t rows = job.outer * job.inner;
  for (int64_t row = int64_t{blockIdx.x} * 8 + threadIdx.x / kWarp; row < rows; row += int64_t{gridDim.x} * 8) {
    const int64_t base = row / job.inner * job.count * job.inner + row % job.inner;
    float best = 0.f;
    int64_t where = -1;
    const auto see = [&](float x, int64_t i) {
      if (i < 0) return;
      const bool better = job.least ? x < best : x > best;
      if (where < 0 || better || (x == best && (job.last ? i > where : i < where))) best = x, where = i;
    };
    for (int64_t i = lane; i < job.count; i += kWarp) see(load_as<float>(job.in, job.dtype, base + i * job.inner), i);
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const float x = __shfl_xor_sync(~0u, best, step);
      see(x, __shfl_xor_sync(~0u, where, step));
    }
    if (lane == 0) job.out[row] = where;
  }
}

// Floats in an order that unsigned numbers have too.
__device__ __forceinline__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);  // -0 is 0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float from_ordered(uint32_t u) {
  return __uint_as_float((u >> 31) != 0 ? u & 0x7fffffffu : ~u);
}

// A block a row, sorted in shared memory (Batcher's bitonic network): a value and its index are one number, the index
// such that of equal values the first wins.
__global__ void __launch_bounds__(1024) top_k_kernel(const __grid_constant__ TopKJob job, int size) {
  extern __shared__ uint64_t keys[];
  wait_for_previous();
  let_next_start();
  const int64_t row = blockIdx.x, outer = row / job.inner, inner = row % job.inner;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    uint64_t key = 0;
    if (i < job.count) {
      const uint32_t u = ordered(load_as<float>(job.in, job.dtype, (outer * job.count + i) * job.inner + inner));
      key = uint64_t{job.least ? ~u : u} << 32 | (0xffffffffu - static_cast<uint32_t>(i));
    }
    keys[i] = key;
  }
  __syncthreads();
  for (int length = 2; length <= size; length *= 2)
    for (int step = length / 2; step > 0; step /= 2) {
      for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
        const int low = i / step * step * 2 + i % step, high = low + step;
        const bool falls = (low & length) == 0;
        const uint64_t a = keys[low], b = keys[high];
        if ((a < b) == falls) keys[low] = b, keys[high] = a;
      }
      __syncthreads();
    }
  for (int i = threadIdx.x; i < job.k; i += blockDim.x) {
    const uint64_t key = keys[i];
    const auto u = static_cast<uint32_t>(key >> 32);
    const int64_t to = (outer * job.k + i) * job.inner + inner;
    if (job.values != nullptr) store_as<float>(job.values, job.dtype, to, from_ordered(job.least ? ~u : u));
    if (job.indices != nullptr) job.indices[to] = 0xffffffffu - static_cast<uint32_t>(key);
  }
}

}  // namespace
}  // namespace cuda

int run_arg(const CudaTarget& target, const ArgJob& job) {
  if (job.outer * job.inner * job.count == 0) return cudaSuccess;
  const int64_t blocks = cuda::ceil_div(job.outer * job.inner, 8);
  return cuda::launch(target, cuda::arg_kernel, dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)),
                      dim3(256), 0, job);
}

int run_top_k(const CudaTarget& target, const TopKJob& job) {
  if (job.outer * job.inner * job.k == 0) return cudaSuccess;
  int size = 32;
  while (size < job.count) size *= 2;
  const size_t bytes = static_cast<size_t>(size) * sizeof(uint64_t);
  static const auto prepared = cudaFuncSetAttribute(cuda::top_k_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    static_cast<int>(kTopKMax * sizeof(uint64_t)));
  if (prepared != cudaSuccess) return prepared;
  const int threads = size / 2 < 1024 ? size / 2 < 32 ? 32 : size / 2 : 1024;
  return cuda::launch(target, cuda::top_k_kernel, dim3(static_cast<unsigned>(job.outer * job.inner)),
                      dim3(static_cast<unsigned>(threads)), bytes, job, size);
}

}  // namespace bolide
