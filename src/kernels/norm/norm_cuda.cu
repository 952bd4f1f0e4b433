// A block a norm, of as few threads as its length can use. A thread's first pack stays in its registers, and its gains
// are there before the row is: a decode step's single row is bound by latency. Passes over the other packs of long rows
// come from L1. How many threads share a row, and so the order of a sum, depends on the row's length and alignment
// alone.
#include <type_traits>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/norm/norm_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kThreadsMax = 1024;

// A matrix; block (x, y) has `count` elements from column y * count of row x.
template <class T>
struct Rows {
  T* data;
  int64_t stride;

  __device__ __forceinline__ T* mine(int count) const {
    return data + int64_t{blockIdx.x} * stride + int64_t{blockIdx.y} * count;
  }
};

template <class T>
Rows<T> rows_of(const CudaMatrix& matrix) {
  return {static_cast<T*>(matrix.data), matrix.stride};
}

// f(first column) for this thread's packs of a row.
template <int kCount, class F>
__device__ __forceinline__ void for_packs(int count, F&& f) {
  const int step = static_cast<int>(blockDim.x) * kCount;
  for (int i = static_cast<int>(threadIdx.x) * kCount; i < count; i += step) f(i);
}

__device__ __forceinline__ float inverse_root(float squares, int count, float eps) {
  return 1.f / sqrtf(squares / static_cast<float>(count) + eps);
}

// x of type X, residual and total of type R, result of type O.
template <class X, class R, class O, int kCount, bool kAdd>
__global__ void __launch_bounds__(kThreadsMax) rms_rows(Rows<const X> xs, Rows<const R> residuals, const float* weight,
                                                        float eps, int count, Rows<R> totals, Rows<O> outs) {
  using Total = std::conditional_t<kAdd, R, X>;
  __shared__ float scratch[kWarp];
  const int first = static_cast<int>(threadIdx.x) * kCount, step = static_cast<int>(blockDim.x) * kCount;
  let_next_start();
  Pack<float, kCount> gains{};
  if (first < count) gains = load<Pack<float, kCount>>(weight + first);
  wait_for_previous();
  const X* x = xs.mine(count);
  Pack<Total, kCount> total{};
  float squares = 0;
  // Backwards: the first pack is what stays.
#pragma unroll 1
  for (int i = first + (count - 1 - first) / step * step; i >= first; i -= step) {
    if (first >= count) break;
    const auto a = load<Pack<X, kCount>>(x + i);
    if constexpr (kAdd) {
      const auto b = load<Pack<R, kCount>>(residuals.mine(count) + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) total.value[j] = narrow<R>(widen(a.value[j]) + widen(b.value[j]));
      store(totals.mine(count) + i, total);
    } else {
      total = a;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) squares = fmaf(widen(total.value[j]), widen(total.value[j]), squares);
  }
  const float scale = inverse_root(block_sum(squares, scratch), count, eps);
#pragma unroll 1
  for (int i = first; i < count; i += step) {
    if (i != first) {
      gains = load<Pack<float, kCount>>(weight + i);
      // Each thread reads back what it wrote.
      if constexpr (kAdd) {
        total = load<Pack<Total, kCount>>(totals.mine(count) + i);
      } else {
        total = load<Pack<Total, kCount>>(x + i);
      }
    }
    Pack<O, kCount> result;
#pragma unroll
    for (int j = 0; j < kCount; ++j) result.value[j] = narrow<O>(widen(total.value[j]) * scale * gains.value[j]);
    store(outs.mine(count) + i, result);
  }
}

template <class T, class O, int kCount>
__global__ void layer_rows(Rows<const T> xs, const float* weight, const float* bias, float eps, int count,
                           Rows<O> outs) {
  using P = Pack<T, kCount>;
  __shared__ float scratch[kWarp];
  wait_for_previous();
  const T* x = xs.mine(count);
  float sum = 0, squares = 0;
  for_packs<kCount>(count, [&](int i) {
    const P a = load<P>(x + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += widen(a.value[j]);
  });
  const float mean = block_sum(sum, scratch) / static_cast<float>(count);
  for_packs<kCount>(count, [&](int i) {
    const P a = load<P>(x + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) squares = fmaf(widen(a.value[j]) - mean, widen(a.value[j]) - mean, squares);
  });
  const float scale = inverse_root(block_sum(squares, scratch), count, eps);
  let_next_start();
  O* out = outs.mine(count);
  for_packs<kCount>(count, [&](int i) {
    const P a = load<P>(x + i);
    Pack<O, kCount> result;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      result.value[j] = narrow<O>(fmaf((widen(a.value[j]) - mean) * scale, weight[i + j], bias[i + j]));
    store(out + i, result);
  });
}

unsigned threads_of(int64_t count, int pack) {
  const int64_t threads = ceil_div(ceil_div(count, pack), kWarp) * kWarp;
  return static_cast<unsigned>(threads < kThreadsMax ? threads : kThreadsMax);
}

template <class X, class R, class O, int kCount>
int rms_as(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& residual, const float* weight, float eps,
           int64_t group, const CudaMatrix& total, const CudaMatrix& out) {
  const dim3 grid(static_cast<unsigned>(x.rows), static_cast<unsigned>(x.cols / group));
  return launch(target, residual.data != nullptr ? rms_rows<X, R, O, kCount, true> : rms_rows<X, R, O, kCount, false>,
                grid, threads_of(group, kCount), 0, rows_of<const X>(x), rows_of<const R>(residual), weight, eps,
                static_cast<int>(group), rows_of<R>(total), rows_of<O>(out));
}

template <class T, class O, int kCount>
int layer_as(const CudaTarget& target, const CudaMatrix& x, const float* weight, const float* bias, float eps,
             const CudaMatrix& out) {
  return launch(target, layer_rows<T, O, kCount>, static_cast<unsigned>(x.rows), threads_of(x.cols, kCount), 0,
                rows_of<const T>(x), weight, bias, eps, static_cast<int>(x.cols), rows_of<O>(out));
}

// True if every norm of these matrices can be moved `count` elements at a time.
template <class... Matrices>
bool packs(int64_t count, int64_t group, const Matrices&... matrices) {
  const auto fits = [&](const CudaMatrix& m) {
    const int64_t size = m.dtype == DType::kBF16 ? 2 : 4;
    return m.data == nullptr || (group % count == 0 && is_aligned(m.data, m.stride * size, count * size));
  };
  return (fits(matrices) && ...);
}

using B = __nv_bfloat16;

// f.operator()<X, R, O, elements that a thread moves at once>(): a pack of 16-bit elements has 16 bytes.
template <class X, class R, class O, class F, class... Matrices>
int dispatch_pack(F&& f, const void* weight, int64_t group, const Matrices&... matrices) {
  constexpr int kCount = 8;
  return is_aligned(weight, 0, kCount * 4) && packs(kCount, group, matrices...)
             ? f.template operator()<X, R, O, kCount>()
             : f.template operator()<X, R, O, 1>();
}

}  // namespace

int rms_norm(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& residual, const float* weight, float eps,
             int64_t group, const CudaMatrix& total, const CudaMatrix& out) {
  const auto run = [&]<class X, class R, class O, int kCount>() {
    return rms_as<X, R, O, kCount>(target, x, residual, weight, eps, group, total, out);
  };
  const auto of = [&]<class X, class R, class O>() {
    return dispatch_pack<X, R, O>(run, weight, group, x, residual, total, out);
  };
  const bool narrow_x = x.dtype == DType::kBF16, narrow_out = out.dtype == DType::kBF16;
  // Without a residual its type is that of x.
  const bool narrow_residual = residual.data != nullptr ? residual.dtype == DType::kBF16 : narrow_x;
  if (narrow_x) {
    if (narrow_residual) return narrow_out ? of.template operator()<B, B, B>() : of.template operator()<B, B, float>();
    return narrow_out ? of.template operator()<B, float, B>() : of.template operator()<B, float, float>();
  }
  if (narrow_residual)
    return narrow_out ? of.template operator()<float, B, B>() : of.template operator()<float, B, float>();
  return narrow_out ? of.template operator()<float, float, B>() : of.template operator()<float, float, float>();
}

int layer_norm(const CudaTarget& target, const CudaMatrix& x, const float* weight, const float* bias, float eps,
               const CudaMatrix& out) {
  const auto run = [&]<class X, class R, class O, int kCount>() {
    return layer_as<X, O, kCount>(target, x, weight, bias, eps, out);
  };
  const bool narrow_out = out.dtype == DType::kBF16;
  if (x.dtype == DType::kBF16)
    return narrow_out ? dispatch_pack<B, B, B>(run, weight, x.cols, x, out)
                      : dispatch_pack<B, B, float>(run, weight, x.cols, x, out);
  return narrow_out ? dispatch_pack<float, float, B>(run, weight, x.cols, x, out)
                    : dispatch_pack<float, float, float>(run, weight, x.cols, x, out);
}

}  // namespace bolide::cuda
