// What is done channel by channel: scales, the statistics of groups, local response normalisation.
//
// Bound by memory: run_channels reads and writes each element once, run_moments reads it once.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kThreads = 256;

dim3 blocks_for(int64_t count, int64_t each) {
  const int64_t blocks = ceil_div(count, each);
  return dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20));
}

// A thread kPack neighbours: of a plane, or of the channels of a position.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) channels_kernel(const __grid_constant__ ChannelsJob job, int64_t packs) {
  wait_for_previous();
  let_next_start();
  const int64_t image = job.C * job.plane;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs; i += int64_t{gridDim.x} * kThreads) {
    const int64_t at = i * kPack;
    const int64_t channel = job.last ? at % job.C : at / job.plane % job.C;
    const int64_t from = channel + (job.by_image ? at / image * job.C : 0);
    const auto x = load<Pack<T, kPack>>(static_cast<const T*>(job.x) + at);
    float y[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const int64_t c = from + (job.last ? k : 0);
      y[k] = fmaf(widen(x.value[k]), job.scale[c], job.shift[c]);
    }
    apply_all(job.then, y);
    Pack<T, kPack> kept;
#pragma unroll
    for (int k = 0; k < kPack; ++k) kept.value[k] = narrow_to<T>(y[k]);
    store(static_cast<T*>(job.y) + at, kept);
  }
}

template <class T>
int run_channels_of(const CudaTarget& target, const ChannelsJob& job) {
  constexpr int kPack = 16 / sizeof(T);
  const int64_t count = job.N * job.C * job.plane;
  if ((job.last ? job.C : job.plane) % kPack == 0 && is_aligned(job.x, 0, 16) && is_aligned(job.y, 0, 16))
    return launch(target, channels_kernel<T, kPack>, blocks_for(count / kPack, kThreads), dim3(kThreads), 0, job,
                  count / kPack);
  return launch(target, channels_kernel<T, 1>, blocks_for(count, kThreads), dim3(kThreads), 0, job, count);
}

// Of a chunk of a plane, with sums of differences from its first element (Chan, Golub and LeVeque 1983): mean and the
// sum of squared differences from it.
__device__ __forceinline__ float2 moments_of(float first, float sum, float squares, int64_t count) {
  const float n = static_cast<float>(count);
  return make_float2(first + sum / n, fmaxf(squares - sum * sum / n, 0.f));
}

// [N, C, plane]: a block a plane.
template <class T>
__global__ void __launch_bounds__(kThreads) plane_moments_kernel(const __grid_constant__ MomentsJob job) {
  __shared__ float scratch[32];
  wait_for_previous();
  let_next_start();
  const T* x = static_cast<const T*>(job.x) + blockIdx.x * job.plane;
  const float first = widen(x[0]);
  float sum = 0.f, squares = 0.f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < job.plane; i += kThreads) {
    const float d = widen(x[i]) - first;
    sum += d, squares += d * d;
  }
  sum = block_sum(sum, scratch);
  squares = block_sum(squares, scratch);
  if (threadIdx.x == 0) reinterpret_cast<float2*>(job.partial)[blockIdx.x] = moments_of(first, sum, squares, job.plane);
}

constexpr int kColumns = 32, kParts = 8;

// [N, plane, C]: a block 32 channels of a chunk of an image.
template <class T>
__global__ void __launch_bounds__(kColumns* kParts)
    column_moments_kernel(const __grid_constant__ MomentsJob job, int64_t chunks) {
  __shared__ float2 parts[kParts][kColumns];
  wait_for_previous();
  let_next_start();
  const int64_t channel = int64_t{blockIdx.x} * kColumns + threadIdx.x, chunk = blockIdx.y;
  const int64_t begin = job.plane * chunk / chunks, end = job.plane * (chunk + 1) / chunks;
  for (int64_t n = blockIdx.z; n < job.N; n += gridDim.z) {
    const T* x = static_cast<const T*>(job.x) + n * job.plane * job.C + channel;
    float first = 0.f, sum = 0.f, squares = 0.f;
    if (channel < job.C) {
      first = widen(x[begin * job.C]);
#pragma unroll 4
      for (int64_t i = begin + threadIdx.y; i < end; i += kParts) {
        const float d = widen(x[i * job.C]) - first;
        sum += d, squares += d * d;
      }
    }
    parts[threadIdx.y][threadIdx.x] = make_float2(sum, squares);
    __syncthreads();
    if (threadIdx.y == 0 && channel < job.C) {
      for (int p = 1; p < kParts; ++p) sum += parts[p][threadIdx.x].x, squares += parts[p][threadIdx.x].y;
      reinterpret_cast<float2*>(job.partial)[(n * chunks + chunk) * job.C + channel] =
          moments_of(first, sum, squares, end - begin);
    }
    __syncthreads();
  }
}

// A warp a group of an image: joins the moments of its channels' chunks.
__global__ void __launch_bounds__(kThreads)
    join_moments_kernel(const __grid_constant__ MomentsJob job, int64_t chunks) {
  wait_for_previous();
  let_next_start();
  const int lane = threadIdx.x % kWarp;
  const int64_t channels = job.C / job.groups, all = channels * chunks;
  const auto* const partial = reinterpret_cast<const float2*>(job.partial);
  for (int64_t i = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp; i < job.N * job.groups;
       i += int64_t{gridDim.x} * (kThreads / kWarp)) {
    const int64_t n = i / job.groups, group = i % job.groups;
    const auto part = [&](int64_t k) {
      return partial[(n * chunks + k / channels) * job.C + group * channels + k % channels];
    };
    const auto length = [&](int64_t k) {
      const int64_t chunk = k / channels;
      return static_cast<float>(job.plane * (chunk + 1) / chunks - job.plane * chunk / chunks);
    };
    const float total = static_cast<float>(channels * job.plane);
    float sum = 0.f, squares = 0.f;
    for (int64_t k = lane; k < all; k += kWarp) sum += part(k).x * (length(k) / total);
    const float mean = warp_sum(sum);
    for (int64_t k = lane; k < all; k += kWarp) {
      const float2 one = part(k);
      squares += one.y + length(k) * (one.x - mean) * (one.x - mean);
    }
    const float inverse = rsqrtf(warp_sum(squares) / total + job.epsilon);
    for (int64_t k = lane; k < channels; k += kWarp) {
      const int64_t c = group * channels + k, from = job.by_group ? group : c;
      const float factor = job.scale[from] * inverse;
      job.scales[n * job.C + c] = factor;
      job.shifts[n * job.C + c] = job.bias[from] - mean * factor;
    }
  }
}

template <class T>
int run_moments_of(const CudaTarget& target, const MomentsJob& job) {
  int64_t chunks = 1;
  int status = cudaSuccess;
  if (job.last) {
    chunks = moments_chunks(job.plane);
    const dim3 grid(static_cast<unsigned>(ceil_div(job.C, kColumns)), static_cast<unsigned>(chunks),
                    static_cast<unsigned>(job.N < 65535 ? job.N : 65535));
    status = launch(target, column_moments_kernel<T>, grid, dim3(kColumns, kParts), 0, job, chunks);
  } else {
    status =
        launch(target, plane_moments_kernel<T>, dim3(static_cast<unsigned>(job.N * job.C)), dim3(kThreads), 0, job);
  }
  if (status != cudaSuccess) return status;
  return launch(target, join_moments_kernel, blocks_for(job.N * job.groups, kThreads / kWarp), dim3(kThreads), 0, job,
                chunks);
}

template <class T>
__global__ void __launch_bounds__(kThreads) local_norm_kernel(const __grid_constant__ LocalNormJob job, int64_t count) {
  wait_for_previous();
  let_next_start();
  const T* x = static_cast<const T*>(job.x);
  const int64_t stride = job.last ? 1 : job.plane;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const int64_t channel = job.last ? i % job.C : i / job.plane % job.C;
    const int64_t begin = channel < job.before ? 0 : channel - job.before;
    const int64_t end = channel + job.after < job.C ? channel + job.after : job.C - 1;
    float squares = 0.f;
    for (int64_t c = begin; c <= end; ++c) {
      const float value = widen(x[i + (c - channel) * stride]);
      squares += value * value;
    }
    static_cast<T*>(job.y)[i] = narrow_to<T>(widen(x[i]) / powf(job.bias + job.alpha * squares, job.beta));
  }
}

template <class T>
int run_local_of(const CudaTarget& target, const LocalNormJob& job) {
  const int64_t count = job.N * job.C * job.plane;
  return launch(target, local_norm_kernel<T>, blocks_for(count, kThreads), dim3(kThreads), 0, job, count);
}

}  // namespace
}  // namespace cuda

int run_channels(const CudaTarget& target, const ChannelsJob& job) {
  if (job.N * job.C * job.plane == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_channels_of<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_channels_of<__nv_bfloat16>(target, job);
  return cuda::run_channels_of<float>(target, job);
}

int run_moments(const CudaTarget& target, const MomentsJob& job) {
  if (job.N * job.C * job.plane == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_moments_of<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_moments_of<__nv_bfloat16>(target, job);
  return cuda::run_moments_of<float>(target, job);
}

int run_local_norm(const CudaTarget& target, const LocalNormJob& job) {
  if (job.N * job.C * job.plane == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_local_of<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_local_of<__nv_bfloat16>(target, job);
  return cuda::run_local_of<float>(target, job);
}

}  // namespace bolide
