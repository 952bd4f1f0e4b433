// Sums, normalisation and softmax along one axis; windows of pools.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kColumns = 32, kParts = 8;

__device__ __forceinline__ float start_of(Reduction kind) {
  switch (kind) {
    case Reduction::kMax: return -INFINITY;
    case Reduction::kMin: return INFINITY;
    case Reduction::kProduct: return 1.f;
    default: return 0.f;
  }
}
__device__ __forceinline__ float joined(Reduction kind, float a, float b) {
  switch (kind) {
    case Reduction::kMax: return a != a || b != b ? a + b : fmaxf(a, b);
    case Reduction::kMin: return a != a || b != b ? a + b : fminf(a, b);
    case Reduction::kProduct: return a * b;
    default: return a + b;
  }
}
__device__ __forceinline__ float taken(Reduction kind, float x) {
  switch (kind) {
    case Reduction::kL1: return fabsf(x);
    case Reduction::kL2:
    case Reduction::kSquares: return x * x;
    default: return x;
  }
}
__device__ __forceinline__ float ended(Reduction kind, float x, int64_t count) {
  if (kind == Reduction::kMean) return x / static_cast<float>(count);
  return kind == Reduction::kL2 ? sqrtf(x) : x;
}

// Neighbouring threads have neighbouring columns; kParts threads share a column, or a chunk of it.
__global__ void __launch_bounds__(kColumns* kParts) reduce_columns_kernel(const __grid_constant__ ReduceJob job) {
  __shared__ float parts[kParts][kColumns];
  wait_for_previous();
  let_next_start();
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x, chunk = blockIdx.z;
  const int64_t begin = job.count * chunk / job.chunks, end = job.count * (chunk + 1) / job.chunks;
  for (int64_t outer = blockIdx.y; outer < job.outer; outer += gridDim.y) {
    float sum = start_of(job.kind);
    if (column < job.inner)
#pragma unroll 4
      for (int64_t i = begin + threadIdx.y; i < end; i += kParts)
        sum =
            joined(job.kind, sum,
                   taken(job.kind, load_as<float>(job.in, job.in_dtype, (outer * job.count + i) * job.inner + column)));
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < job.inner) {
      for (int p = 1; p < kParts; ++p) sum = joined(job.kind, sum, parts[p][threadIdx.x]);
      if (job.chunks > 1)
        job.partial[(outer * job.chunks + chunk) * job.inner + column] = sum;
      else
        store_as<float>(job.out, job.out_dtype, outer * job.inner + column, ended(job.kind, sum, job.count));
    }
    __syncthreads();
  }
}

// Joins the chunks of columns: a thread a column.
__global__ void __launch_bounds__(128) join_chunks_kernel(const __grid_constant__ ReduceJob job) {
  wait_for_previous();
  let_next_start();
  const int64_t all = job.outer * job.inner;
  for (int64_t i = int64_t{blockIdx.x} * 128 + threadIdx.x; i < all; i += int64_t{gridDim.x} * 128) {
    const int64_t outer = i / job.inner, column = i % job.inner;
    float sum = start_of(job.kind);
#pragma unroll 8
    for (int64_t c = 0; c < job.chunks; ++c)
      sum = joined(job.kind, sum, job.partial[(outer * job.chunks + c) * job.inner + column]);
    store_as<float>(job.out, job.out_dtype, i, ended(job.kind, sum, job.count));
  }
}

// A block a row, where rows are long.
__global__ void __launch_bounds__(256) reduce_long_rows_kernel(const __grid_constant__ ReduceJob job) {
  __shared__ float parts[256 / kWarp];
  wait_for_previous();
  let_next_start();
  for (int64_t row = blockIdx.x; row < job.outer; row += gridDim.x) {
    float sum = start_of(job.kind);
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < job.count; i += 256)
      sum = joined(job.kind, sum, taken(job.kind, load_as<float>(job.in, job.in_dtype, row * job.count + i)));
    for (int step = kWarp / 2; step > 0; step /= 2) sum = joined(job.kind, sum, __shfl_xor_sync(~0u, sum, step));
    if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int p = 1; p < 256 / kWarp; ++p) sum = joined(job.kind, sum, parts[p]);
      store_as<float>(job.out, job.out_dtype, row, ended(job.kind, sum, job.count));
    }
    __syncthreads();
  }
}

// A warp a row.
__global__ void __launch_bounds__(256) reduce_rows_kernel(const __grid_constant__ ReduceJob job) {
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % kWarp;
  for (int64_t row = int64_t{blockIdx.x} * 8 + threadIdx.x / kWarp; row < job.outer; row += int64_t{gridDim.x} * 8) {
    float sum = start_of(job.kind);
    for (int64_t i = lane; i < job.count; i += kWarp)
      sum = joined(job.kind, sum, taken(job.kind, load_as<float>(job.in, job.in_dtype, row * job.count + i)));
    for (int step = kWarp / 2; step > 0; step /= 2) sum = joined(job.kind, sum, __shfl_xor_sync(~0u, sum, step));
    if (lane == 0) store_as<float>(job.out, job.out_dtype, row, ended(job.kind, sum, job.count));
  }
}

// A warp a row; elements `inner` apart.
__global__ void __launch_bounds__(256) softmax_kernel(const __grid_constant__ SoftmaxJob job) {
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % kWarp;
  const int64_t rows = job.outer * job.inner;
  for (int64_t row = int64_t{blockIdx.x} * 8 + threadIdx.x / kWarp; row < rows; row += int64_t{gridDim.x} * 8) {
    const int64_t base = row / job.inner * job.count * job.inner + row % job.inner;
    float most = -INFINITY, sum = 0.f;
    for (int64_t i = lane; i < job.count; i += kWarp)
      most = fmaxf(most, load_as<float>(job.in, job.dtype, base + i * job.inner));
    for (int step = kWarp / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    for (int64_t i = lane; i < job.count; i += kWarp)
      sum += expf(load_as<float>(job.in, job.dtype, base + i * job.inner) - most);
    sum = warp_sum(sum);
    const float scale = 1.f / sum, shift = logf(sum);
    for (int64_t i = lane; i < job.count; i += kWarp) {
      const float x = load_as<float>(job.in, job.dtype, base + i * job.inner) - most;
      store_as<float>(job.out, job.dtype, base + i * job.inner, job.logarithm ? x - shift : expf(x) * scale);
    }
  }
}

// A block a row, which it keeps in shared memory as f32.
template <class T, int kPack>
__global__ void __launch_bounds__(128) norm_kernel(const __grid_constant__ NormJob job) {
  extern __shared__ float row[];
  __shared__ float scratch[32];
  const int64_t r = blockIdx.x;
  const int columns = static_cast<int>(job.columns), packs = columns / kPack;
  wait_for_previous();
  let_next_start();
  const T* x = static_cast<const T*>(job.x) + r * columns;
  const T* skip = job.skip == nullptr ? nullptr : static_cast<const T*>(job.skip) + r % job.skip_rows * columns;
  float sum = 0.f;
  for (int i = threadIdx.x; i < packs; i += 128) {
    const auto a = load<Pack<T, kPack>>(x + i * kPack);
    Pack<T, kPack> b{}, kept;
    if (skip != nullptr) b = load<Pack<T, kPack>>(skip + i * kPack);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      float value = widen(a.value[k]);
      if (skip != nullptr) value += widen(b.value[k]);
      if (job.skip_bias != nullptr) value += job.skip_bias[i * kPack + k];
      kept.value[k] = narrow_to<T>(value);
      row[i * kPack + k] = value;
      sum += value;
    }
    if (job.sum != nullptr) store(static_cast<T*>(job.sum) + r * columns + i * kPack, kept);
  }
  const float mean = job.centred ? block_sum(sum, scratch) / static_cast<float>(columns) : 0.f;
  float squares = 0.f;
  for (int i = threadIdx.x; i < packs; i += 128)
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const float d = row[i * kPack + k] - mean;
      squares += d * d;
    }
  const float inverse = rsqrtf(block_sum(squares, scratch) / static_cast<float>(columns) + job.epsilon);
  for (int i = threadIdx.x; i < packs; i += 128) {
    Pack<T, kPack> y;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const int c = i * kPack + k;
      float value = (row[c] - mean) * inverse;
      if (job.scale != nullptr) value *= job.scale[c];
      if (job.bias != nullptr) value += job.bias[c];
      y.value[k] = narrow_to<T>(value);
    }
    store(static_cast<T*>(job.y) + r * columns + i * kPack, y);
  }
}

template <class T, int kPack>
int run_norm_of(const CudaTarget& target, const NormJob& job) {
  const size_t bytes = static_cast<size_t>(job.columns) * sizeof(float);
  if (bytes > 48 << 10) {
    const auto status = cudaFuncSetAttribute(norm_kernel<T, kPack>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(bytes));
    if (status != cudaSuccess) return status;
  }
  return launch(target, norm_kernel<T, kPack>, dim3(static_cast<unsigned>(job.rows)), dim3(128), bytes, job);
}

template <class T>
int run_norm_with(const CudaTarget& target, const NormJob& job) {
  const int64_t stride = job.columns * static_cast<int64_t>(sizeof(T)), pack = 4 * sizeof(T);
  bool aligned = job.columns % 4 == 0;
  for (const void* data : {job.x, job.skip, static_cast<const void*>(job.y), static_cast<const void*>(job.sum)})
    aligned = aligned && is_aligned(data, stride, pack);
  return aligned ? run_norm_of<T, 4>(target, job) : run_norm_of<T, 1>(target, job);
}

// A thread a few channels of an output position.
template <class T, int kPack>
__global__ void __launch_bounds__(256) pool_kernel(const __grid_constant__ PoolJob job, int64_t count) {
  wait_for_previous();
  let_next_start();
  const Geometry& g = job.at;
  const int64_t packs = g.C / kPack;
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < count; i += int64_t{gridDim.x} * 256) {
    const int64_t channel = i % packs * kPack, position = i / packs;
    const int64_t ow = position % g.OW, oh = position / g.OW % g.OH, n = position / g.OW / g.OH;
    const int64_t h0 = oh * g.stride_h - g.pad_h, w0 = ow * g.stride_w - g.pad_w;
    float value[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) value[k] = job.kind == Pool::kMax ? -INFINITY : 0.f;
    int taps = 0;
    for (int64_t r = 0; r < g.R; ++r) {
      const int64_t h = h0 + r * g.dilation_h;
      for (int64_t s = 0; s < g.S; ++s) {
        const int64_t w = w0 + s * g.dilation_w;
        if (job.kind == Pool::kMeanWithPadding && h < job.limit_h && w < job.limit_w) ++taps;
        if (h < 0 || h >= g.H || w < 0 || w >= g.W) continue;
        if (job.kind == Pool::kMean) ++taps;
        const auto x = load<Pack<T, kPack>>(static_cast<const T*>(job.in) + ((n * g.H + h) * g.W + w) * g.C + channel);
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
          const float v = widen(x.value[k]);
          value[k] = job.kind == Pool::kMax ? (v != v || value[k] != value[k] ? v + value[k] : fmaxf(value[k], v))
                                            : value[k] + v;
        }
      }
    }
    Pack<T, kPack> y;
#pragma unroll
    for (int k = 0; k < kPack; ++k)
      y.value[k] = narrow_to<T>(job.kind == Pool::kMax ? value[k] : value[k] / static_cast<float>(max(taps, 1)));
    store(static_cast<T*>(job.out) + position * g.C + channel, y);
  }
}

template <class T, int kPack>
int run_pool_of(const CudaTarget& target, const PoolJob& job) {
  const int64_t count = job.at.N * job.at.OH * job.at.OW * (job.at.C / kPack);
  const int64_t blocks = ceil_div(count, 256);
  return launch(target, pool_kernel<T, kPack>, dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)),
                dim3(256), 0, job, count);
}
template <class T>
int run_pool_with(const CudaTarget& target, const PoolJob& job) {
  constexpr int kPack = 16 / sizeof(T);
  if (job.at.C % kPack == 0 && is_aligned(job.in, 0, 16) && is_aligned(job.out, 0, 16))
    return run_pool_of<T, kPack>(target, job);
  return run_pool_of<T, 1>(target, job);
}

}  // namespace
}  // namespace cuda

int run_reduce(const CudaTarget& target, const ReduceJob& job) {
  if (job.outer * job.inner == 0) return cudaSuccess;
  if (job.inner == 1 && job.count >= 1024)
    return cuda::launch(target, cuda::reduce_long_rows_kernel,
                        dim3(static_cast<unsigned>(job.outer < 1 << 20 ? job.outer : 1 << 20)), dim3(256), 0, job);
  if (job.inner == 1) {
    const int64_t blocks = cuda::ceil_div(job.outer, 8);
    return cuda::launch(target, cuda::reduce_rows_kernel,
                        dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)), dim3(256), 0, job);
  }
  const dim3 grid(static_cast<unsigned>(cuda::ceil_div(job.inner, cuda::kColumns)),
                  static_cast<unsigned>(job.outer < 65535 ? job.outer : 65535), static_cast<unsigned>(job.chunks));
  const int status =
      cuda::launch(target, cuda::reduce_columns_kernel, grid, dim3(cuda::kColumns, cuda::kParts), 0, job);
  if (status != cudaSuccess || job.chunks == 1) return status;
  const int64_t blocks = cuda::ceil_div(job.outer * job.inner, 128);
  return cuda::launch(target, cuda::join_chunks_kernel,
                      dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)), dim3(128), 0, job);
}

int run_softmax(const CudaTarget& target, const SoftmaxJob& job) {
  if (job.outer * job.inner * job.count == 0) return cudaSuccess;
  const int64_t blocks = cuda::ceil_div(job.outer * job.inner, 8);
  return cuda::launch(target, cuda::softmax_kernel, dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)),
                      dim3(256), 0, job);
}

int run_norm(const CudaTarget& target, const NormJob& job) {
  if (job.rows == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_norm_with<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_norm_with<__nv_bfloat16>(target, job);
  return cuda::run_norm_with<float>(target, job);
}

int run_pool(const CudaTarget& target, const PoolJob& job) {
  if (job.at.N * job.at.OH * job.at.OW * job.at.C == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_pool_with<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_pool_with<__nv_bfloat16>(target, job);
  return cuda::run_pool_with<float>(target, job);
}

}  // namespace bolide
