// Products and convolutions without tensor cores: any sizes and strides, f32 as f32.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kTile = 64, kDeep = 16, kThreads = 256, kOwn = 4;

// A [M, K] as ProductJob has it.
template <class T>
__device__ __forceinline__ float element_of(const ProductJob& job, const T* a, int64_t m, int64_t k) {
  if (m >= job.M || k >= job.K) return 0.f;
  if (!job.is_convolution) return widen(a[m * job.a_stride + k]);
  const Geometry& g = job.at;
  const auto C = static_cast<uint32_t>(g.C), S = static_cast<uint32_t>(g.S);
  const auto depth = static_cast<uint32_t>(k), position = static_cast<uint32_t>(m);
  const uint32_t channel = depth % C, tap = depth / C;
  const auto ow = static_cast<int>(position % static_cast<uint32_t>(g.OW));
  const uint32_t row = position / static_cast<uint32_t>(g.OW);
  const auto oh = static_cast<int>(row % static_cast<uint32_t>(g.OH));
  const int h = oh * g.stride_h - g.pad_h + static_cast<int>(tap / S) * g.dilation_h;
  const int w = ow * g.stride_w - g.pad_w + static_cast<int>(tap % S) * g.dilation_w;
  if (h < 0 || h >= g.H || w < 0 || w >= g.W) return 0.f;
  return widen(a[((int64_t{row / static_cast<uint32_t>(g.OH)} * g.H + h) * g.W + w) * g.C + channel]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) product_any_kernel(const __grid_constant__ ProductJob job) {
  __shared__ float as[kDeep][kTile + 4], bs[kDeep][kTile + 4];
  wait_for_previous();
  let_next_start();
  const int64_t m0 = int64_t{blockIdx.x} * kTile, n0 = int64_t{blockIdx.y} * kTile;
  const int thread = static_cast<int>(threadIdx.x), tm = thread / 16 * kOwn, tn = thread % 16 * kOwn;
  for (int64_t batch = blockIdx.z; batch < job.batch; batch += gridDim.z) {
    const T* a = static_cast<const T*>(job.a) + batch * job.a_batch;
    const T* b = static_cast<const T*>(job.b) + batch * job.b_batch;
    float sums[kOwn][kOwn] = {};
    for (int64_t k0 = 0; k0 < job.K; k0 += kDeep) {
      for (int i = thread; i < kTile * kDeep; i += kThreads) {
        const int k = i % kDeep, row = i / kDeep;
        as[k][row] = element_of(job, a, m0 + row, k0 + k);
        bs[k][row] = n0 + row < job.N && k0 + k < job.K ? widen(b[(n0 + row) * job.b_stride + k0 + k]) : 0.f;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kDeep; ++k) {
        const auto x = *reinterpret_cast<const float4*>(&as[k][tm]), y = *reinterpret_cast<const float4*>(&bs[k][tn]);
        const float xs[kOwn] = {x.x, x.y, x.z, x.w}, ys[kOwn] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
#pragma unroll
          for (int j = 0; j < kOwn; ++j) sums[i][j] = fmaf(xs[i], ys[j], sums[i][j]);
      }
      __syncthreads();
    }
    const Epilogue& e = job.epilogue;
    const T* residual = e.residual == nullptr ? nullptr : static_cast<const T*>(e.residual) + batch * e.residual_batch;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t m = m0 + tm + i;
      if (m >= job.M) continue;
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const int64_t n = n0 + tn + j;
        if (n >= job.N) continue;
        sums[i][j] *= e.alpha;
        if (e.bias != nullptr) sums[i][j] += e.bias[n];
        if (residual != nullptr) sums[i][j] += widen(residual[m * e.residual_stride + n]);
      }
      apply_all(e.then, sums[i]);
#pragma unroll
      for (int j = 0; j < kOwn; ++j)
        if (const int64_t n = n0 + tn + j; n < job.N)
          static_cast<T*>(job.out)[batch * job.out_batch + m * job.out_stride + n] = narrow_to<T>(sums[i][j]);
    }
  }
}

template <class T>
int run_any(const CudaTarget& target, const ProductJob& job) {
  const dim3 grid(static_cast<unsigned>(ceil_div(job.M, kTile)), static_cast<unsigned>(ceil_div(job.N, kTile)),
                  static_cast<unsigned>(job.batch < 65535 ? job.batch : 65535));
  return launch(target, product_any_kernel<T>, grid, dim3(kThreads), 0, job);
}

// A thread kPack output channels of a position, each of a group of its own (depthwise) or not.
template <class T, int kPack>
__global__ void __launch_bounds__(256) grouped_kernel(const __grid_constant__ GroupedJob job, int64_t count) {
  wait_for_previous();
  let_next_start();
  const Geometry& g = job.at;
  const int64_t packs = job.M / kPack, depth = g.C / job.groups, rows = job.M / job.groups;
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < count; i += int64_t{gridDim.x} * 256) {
    const int64_t m = i % packs * kPack, position = i / packs;
    const int64_t ow = position % g.OW, oh = position / g.OW % g.OH, n = position / g.OW / g.OH;
    float sums[kPack] = {};
    const T* w = static_cast<const T*>(job.w);
    for (int64_t r = 0; r < g.R; ++r) {
      const int64_t h = oh * g.stride_h - g.pad_h + r * g.dilation_h;
      if (h < 0 || h >= g.H) continue;
      for (int64_t s = 0; s < g.S; ++s) {
        const int64_t x = ow * g.stride_w - g.pad_w + s * g.dilation_w;
        if (x < 0 || x >= g.W) continue;
        const T* in = static_cast<const T*>(job.x) + ((n * g.H + h) * g.W + x) * g.C;
        if constexpr (kPack > 1) {  // depthwise: w [R, S, M]
          const auto a = load<Pack<T, kPack>>(in + m);
          const auto b = load<Pack<T, kPack>>(w + (r * g.S + s) * job.M + m);
#pragma unroll
          for (int c = 0; c < kPack; ++c) sums[c] = fmaf(widen(a.value[c]), widen(b.value[c]), sums[c]);
        } else {  // w [R, S, M, depth]
          const T* b = w + ((r * g.S + s) * job.M + m) * depth;
          const T* from = in + m / rows * depth;
          for (int64_t c = 0; c < depth; ++c) sums[0] = fmaf(widen(from[c]), widen(b[c]), sums[0]);
        }
      }
    }
    const Epilogue& e = job.epilogue;
#pragma unroll
    for (int c = 0; c < kPack; ++c) {
      sums[c] *= e.alpha;
      if (e.bias != nullptr) sums[c] += e.bias[m + c];
      if (e.residual != nullptr)
        sums[c] += widen(static_cast<const T*>(e.residual)[position * e.residual_stride + m + c]);
    }
    apply_all(e.then, sums);
    Pack<T, kPack> y;
#pragma unroll
    for (int c = 0; c < kPack; ++c) y.value[c] = narrow_to<T>(sums[c]);
    store(static_cast<T*>(job.out) + position * job.M + m, y);
  }
}

template <class T, int kPack>
int run_grouped_of(const CudaTarget& target, const GroupedJob& job) {
  const int64_t count = job.at.N * job.at.OH * job.at.OW * (job.M / kPack), blocks = ceil_div(count, 256);
  return launch(target, grouped_kernel<T, kPack>, dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)),
                dim3(256), 0, job, count);
}
template <class T>
int run_grouped_with(const CudaTarget& target, const GroupedJob& job) {
  constexpr int kPack = 16 / sizeof(T) / 2;  // 8 bytes: registers and blocks enough for small pictures
  const bool aligned = is_aligned(job.x, 0, 8) && is_aligned(job.w, 0, 8) && is_aligned(job.out, 0, 8);
  if (job.groups == job.at.C && job.M == job.at.C && job.M % kPack == 0 && aligned)
    return run_grouped_of<T, kPack>(target, job);
  return run_grouped_of<T, 1>(target, job);
}

}  // namespace
}  // namespace cuda

int run_product_any(const CudaTarget& target, const ProductJob& job) {
  if (job.M * job.N * job.batch == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_any<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_any<__nv_bfloat16>(target, job);
  return cuda::run_any<float>(target, job);
}

int run_grouped(const CudaTarget& target, const GroupedJob& job) {
  if (job.at.N * job.at.OH * job.at.OW * job.M == 0) return cudaSuccess;
  if (job.dtype == DType::kF16) return cuda::run_grouped_with<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_grouped_with<__nv_bfloat16>(target, job);
  return cuda::run_grouped_with<float>(target, job);
}

}  // namespace bolide
