// Images made larger or smaller: sums of taps along up to three axes, and the end of a transposed convolution.
//
// Bound by memory: neighbours read the same taps, which the caches keep.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kThreads = 256;

dim3 blocks_for(int64_t count) {
  const int64_t blocks = ceil_div(count, kThreads);
  return dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20));
}

// A thread kPack neighbours of the last axis, which has no taps then.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) resample_kernel(const __grid_constant__ ResampleJob job, int64_t packs) {
  wait_for_previous();
  let_next_start();
  const int last = job.rank - 1;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs; i += int64_t{gridDim.x} * kThreads) {
    int64_t rest = i, from = 0, to = 0, place[3] = {};
    for (int d = last; d >= 0; --d) {
      const int64_t dim = d == last ? job.dims[d] / kPack : job.dims[d];
      const int64_t index = rest % dim * (d == last ? kPack : 1);
      rest /= dim;
      to += index * job.out_strides[d];
      bool is_tapped = false;
      for (int t = 0; t < job.axes; ++t)
        if (job.tapped[t].axis == d) place[t] = index * job.tapped[t].count, is_tapped = true;
      if (!is_tapped) from += index * job.in_strides[d];
    }
    const auto tap = [&](int t, int k, int64_t& offset) {
      if (t >= job.axes) return 1.f;
      const ResampleJob::Axis& axis = job.tapped[t];
      offset += axis.indices[place[t] + k] * job.in_strides[axis.axis];
      return axis.weights[place[t] + k];
    };
    float sums[kPack] = {};
    for (int a = 0; a < job.tapped[0].count; ++a) {
      int64_t at_a = from;
      const float weight_a = tap(0, a, at_a);
      for (int b = 0; b < job.tapped[1].count; ++b) {
        int64_t at_b = at_a;
        const float weight_b = weight_a * tap(1, b, at_b);
        for (int c = 0; c < job.tapped[2].count; ++c) {
          int64_t at = at_b;
          const float weight = weight_b * tap(2, c, at);
          if (weight == 0.f) continue;
          const auto x = load<Pack<T, kPack>>(static_cast<const T*>(job.in) + at);
#pragma unroll
          for (int k = 0; k < kPack; ++k) sums[k] = fmaf(weight, widen(x.value[k]), sums[k]);
        }
      }
    }
    Pack<T, kPack> y;
#pragma unroll
    for (int k = 0; k < kPack; ++k) y.value[k] = narrow_to<T>(sums[k]);
    store(static_cast<T*>(job.out) + to, y);
  }
}

template <class T>
int run_resample_of(const CudaTarget& target, const ResampleJob& job) {
  constexpr int kPack = 16 / sizeof(T);
  const int last = job.rank - 1;
  int64_t count = 1;
  for (int d = 0; d < job.rank; ++d) count *= job.dims[d];
  bool packed = job.dims[last] % kPack == 0 && job.in_strides[last] == 1 && job.out_strides[last] == 1 &&
                is_aligned(job.in, 0, 16) && is_aligned(job.out, 0, 16);
  for (int t = 0; t < job.axes; ++t) packed = packed && job.tapped[t].axis != last;
  for (int d = 0; d < last; ++d) packed = packed && job.in_strides[d] % kPack == 0 && job.out_strides[d] % kPack == 0;
  if (packed)
    return launch(target, resample_kernel<T, kPack>, blocks_for(count / kPack), dim3(kThreads), 0, job, count / kPack);
  return launch(target, resample_kernel<T, 1>, blocks_for(count), dim3(kThreads), 0, job, count);
}

// A thread kPack output channels of a position.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ FoldJob job, int64_t packs) {
  wait_for_previous();
  let_next_start();
  const Geometry& g = job.at;
  const int64_t own = job.M / job.groups, taps = g.R * g.S, row = job.M * taps;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs; i += int64_t{gridDim.x} * kThreads) {
    const int64_t m = i % (job.M / kPack) * kPack, position = i / (job.M / kPack);
    const int64_t w = position % g.W, h = position / g.W % g.H, n = position / g.W / g.H;
    const T* columns = static_cast<const T*>(job.columns) + m / own * taps * own + m % own;
    float sums[kPack] = {};
    for (int64_t r = 0; r < g.R; ++r) {
      const int64_t y = h + g.pad_h - r * g.dilation_h;
      if (y < 0 || y % g.stride_h != 0 || y / g.stride_h >= g.OH) continue;
      for (int64_t s = 0; s < g.S; ++s) {
        const int64_t x = w + g.pad_w - s * g.dilation_w;
        if (x < 0 || x % g.stride_w != 0 || x / g.stride_w >= g.OW) continue;
        const auto one = load<Pack<T, kPack>>(columns + ((n * g.OH + y / g.stride_h) * g.OW + x / g.stride_w) * row +
                                              (r * g.S + s) * own);
#pragma unroll
        for (int k = 0; k < kPack; ++k) sums[k] += widen(one.value[k]);
      }
    }
    const Epilogue& e = job.epilogue;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      if (e.bias != nullptr) sums[k] += e.bias[m + k];
      if (e.residual != nullptr) sums[k] += widen(static_cast<const T*>(e.residual)[position * job.M + m + k]);
    }
    apply_all(e.then, sums);
    Pack<T, kPack> y;
#pragma unroll
    for (int k = 0; k < kPack; ++k) y.value[k] = narrow_to<T>(sums[k]);
    store(static_cast<T*>(job.out) + position * job.M + m, y);
  }
}

template <class T>
int run_fold_of(const CudaTarget& target, const FoldJob& job) {
  constexpr int kPack = 16 / sizeof(T);
  const int64_t count = job.at.N * job.at.H * job.at.W * job.M;
  if (job.M / job.groups % kPack == 0 && is_aligned(job.columns, 0, 16) && is_aligned(job.out, 0, 16))
    return launch(target, fold_kernel<T, kPack>, blocks_for(count / kPack), dim3(kThreads), 0, job, count / kPack);
  return launch(target, fold_kernel<T, 1>, blocks_for(count), dim3(kThreads), 0, job, count);
}

}  // namespace
}  // namespace cuda

int run_resample(const CudaTarget& target, const ResampleJob& job) {
  for (int d = 0; d < job.rank; ++d)
    if (job.dims[d] == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_resample_of<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_resample_of<__nv_bfloat16>(target, job);
  return cuda::run_resample_of<float>(target, job);
}

int run_fold(const CudaTarget& target, const FoldJob& job) {
  if (job.at.N * job.at.H * job.at.W * job.M == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_fold_of<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_fold_of<__nv_bfloat16>(target, job);
  return cuda::run_fold_of<float>(target, job);
}

}  // namespace bolide
