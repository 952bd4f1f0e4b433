// A block a norm, of as few threads as its length can use; later passes over the row come from L1. How many threads
// share a row, and so the order of a sum, depends on the row's length and alignment alone.
#include "kernels/common/cuda_launch.cuh"
#include "kernels/norm/norm_cuda_parts.h"

namespace bolide::cuda {
namespace {

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

template <class T, int kCount, bool kAdd>
__global__ void rms_rows(Rows<const T> xs, Rows<const T> residuals, const float* weight, float eps, int count,
                         Rows<T> totals, Rows<T> outs) {
  using P = Pack<T, kCount>;
  __shared__ float scratch[kWarp];
  wait_for_previous();
  const T* x = xs.mine(count);
  float squares = 0;
  if constexpr (kAdd) {
    const T* residual = residuals.mine(count);
    T* total = totals.mine(count);
    for_packs<kCount>(count, [&](int i) {
      const P a = load<P>(x + i), b = load<P>(residual + i);
      P sum;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        sum.value[j] = narrow<T>(widen(a.value[j]) + widen(b.value[j]));
        squares = fmaf(widen(sum.value[j]), widen(sum.value[j]), squares);
      }
      store(total + i, sum);
    });
    x = total;  // each thread reads back what it wrote
  } else {
    for_packs<kCount>(count, [&](int i) {
      const P a = load<P>(x + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) squares = fmaf(widen(a.value[j]), widen(a.value[j]), squares);
    });
  }
  const float scale = inverse_root(block_sum(squares, scratch), count, eps);
  let_next_start();
  T* out = outs.mine(count);
  for_packs<kCount>(count, [&](int i) {
    const P a = load<P>(x + i);
    P result;
#pragma unroll
    for (int j = 0; j < kCount; ++j) result.value[j] = narrow<T>(widen(a.value[j]) * scale * weight[i + j]);
    store(out + i, result);
  });
}

template <class T, int kCount>
__global__ void layer_rows(Rows<const T> xs, const float* weight, const float* bias, float eps, int count,
                           Rows<T> outs) {
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
  T* out = outs.mine(count);
  for_packs<kCount>(count, [&](int i) {
    const P a = load<P>(x + i);
    P result;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      result.value[j] = narrow<T>(fmaf((widen(a.value[j]) - mean) * scale, weight[i + j], bias[i + j]));
    store(out + i, result);
  });
}

unsigned threads_of(int64_t count, int pack) {
  const int64_t threads = ceil_div(ceil_div(count, pack), kWarp) * kWarp;
  return static_cast<unsigned>(threads < 1024 ? threads : 1024);
}

template <class T, int kCount>
int rms_as(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& residual, const float* weight, float eps,
           int64_t group, const CudaMatrix& total, const CudaMatrix& out) {
  const dim3 grid(static_cast<unsigned>(x.rows), static_cast<unsigned>(x.cols / group));
  return launch(target, residual.data != nullptr ? rms_rows<T, kCount, true> : rms_rows<T, kCount, false>, grid,
                threads_of(group, kCount), 0, rows_of<const T>(x), rows_of<const T>(residual), weight, eps,
                static_cast<int>(group), rows_of<T>(total), rows_of<T>(out));
}

template <class T, int kCount>
int layer_as(const CudaTarget& target, const CudaMatrix& x, const float* weight, const float* bias, float eps,
             const CudaMatrix& out) {
  return launch(target, layer_rows<T, kCount>, static_cast<unsigned>(x.rows), threads_of(x.cols, kCount), 0,
                rows_of<const T>(x), weight, bias, eps, static_cast<int>(x.cols), rows_of<T>(out));
}

// True if every norm of these matrices can be moved 16 bytes at a time.
template <class... Matrices>
bool packs(int64_t group, const Matrices&... matrices) {
  const auto fits = [&](const CudaMatrix& m) {
    const int64_t size = m.dtype == DType::kBF16 ? 2 : 4;
    return m.data == nullptr || (group * size % 16 == 0 && is_aligned(m.data, m.stride * size, 16));
  };
  return (fits(matrices) && ...);
}

// f.operator()<T, elements that a thread moves at once>().
template <class F>
int dispatch(DType dtype, bool packed, F&& f) {
  if (dtype == DType::kBF16)
    return packed ? f.template operator()<__nv_bfloat16, 8>() : f.template operator()<__nv_bfloat16, 1>();
  return packed ? f.template operator()<float, 4>() : f.template operator()<float, 1>();
}

}  // namespace

int rms_norm(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& residual, const float* weight, float eps,
             int64_t group, const CudaMatrix& total, const CudaMatrix& out) {
  return dispatch(x.dtype, packs(group, x, residual, total, out), [&]<class T, int kCount>() {
    return rms_as<T, kCount>(target, x, residual, weight, eps, group, total, out);
  });
}

int layer_norm(const CudaTarget& target, const CudaMatrix& x, const float* weight, const float* bias, float eps,
               const CudaMatrix& out) {
  return dispatch(x.dtype, packs(x.cols, x, out),
                  [&]<class T, int kCount>() { return layer_as<T, kCount>(target, x, weight, bias, eps, out); });
}

}  // namespace bolide::cuda
