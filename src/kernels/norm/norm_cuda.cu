// A block or, for short rows, a warp a row; later passes over the row come from L1. How many threads share a row, and
// so the order of a sum, depends on the row's length and alignment alone.
#include "kernels/common/cuda_launch.cuh"
#include "kernels/norm/norm_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;     // where a warp has a row
constexpr int64_t kWarpRowMax = 512;  // elements

// Which norm a thread works at, and its place among those that share it.
struct Place {
  int64_t index, thread, threads;
};

template <bool kWarpRow>
__device__ __forceinline__ Place place() {
  if constexpr (kWarpRow)
    return {int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp, int64_t{threadIdx.x % kWarp}, int64_t{kWarp}};
  else
    return {int64_t{blockIdx.x}, int64_t{threadIdx.x}, int64_t{blockDim.x}};
}

template <bool kWarpRow>
__device__ __forceinline__ float row_sum(float x, float* scratch) {
  if constexpr (kWarpRow)
    return warp_sum(x);
  else
    return block_sum(x, scratch);
}

// f(first column) for this thread's packs of a row.
template <int kCount, class F>
__device__ __forceinline__ void for_packs(const Place& place, int64_t count, F&& f) {
  for (int64_t i = place.thread * kCount; i < count; i += place.threads * kCount) f(i);
}

template <class T, int kCount>
struct Rows {
  T* data;
  int64_t stride;  // elements; norm n of `groups` a row starts at row n / groups, column n % groups * count

  __device__ __forceinline__ T* norm(int64_t index, int64_t groups, int64_t count) const {
    return data + index / groups * stride + index % groups * count;
  }
};

template <class T, int kCount, bool kWarpRow, bool kAdd>
__global__ void rms_rows(Rows<const T, kCount> xs, Rows<const T, kCount> residuals, const float* weight, float eps,
                         int64_t norms, int64_t groups, int64_t count, Rows<T, kCount> totals, Rows<T, kCount> outs) {
  using P = Pack<T, kCount>;
  __shared__ float scratch[kWarp];
  const Place at = place<kWarpRow>();
  wait_for_previous();
  if (kWarpRow && at.index >= norms) return;
  const T* x = xs.norm(at.index, groups, count);
  float squares = 0;
  if constexpr (kAdd) {
    const T* residual = residuals.norm(at.index, groups, count);
    T* total = totals.norm(at.index, groups, count);
    for_packs<kCount>(at, count, [&](int64_t i) {
      const P a = load<P>(x + i), b = load<P>(residual + i);
      P sum;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        sum.value[j] = narrow<T>(widen(a.value[j]) + widen(b.value[j]));
        const float v = widen(sum.value[j]);
        squares = fmaf(v, v, squares);
      }
      store(total + i, sum);
    });
    x = total;  // each thread reads back what it wrote
  } else {
    for_packs<kCount>(at, count, [&](int64_t i) {
      const P a = load<P>(x + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) squares = fmaf(widen(a.value[j]), widen(a.value[j]), squares);
    });
  }
  const float scale = 1.f / sqrtf(row_sum<kWarpRow>(squares, scratch) / static_cast<float>(count) + eps);
  let_next_start();
  T* out = outs.norm(at.index, groups, count);
  for_packs<kCount>(at, count, [&](int64_t i) {
    const P a = load<P>(x + i);
    P result;
#pragma unroll
    for (int j = 0; j < kCount; ++j) result.value[j] = narrow<T>(widen(a.value[j]) * scale * weight[i + j]);
    store(out + i, result);
  });
}

template <class T, int kCount, bool kWarpRow>
__global__ void layer_rows(Rows<const T, kCount> xs, const float* weight, const float* bias, float eps, int64_t norms,
                           int64_t count, Rows<T, kCount> outs) {
  using P = Pack<T, kCount>;
  __shared__ float scratch[kWarp];
  const Place at = place<kWarpRow>();
  wait_for_previous();
  if (kWarpRow && at.index >= norms) return;
  const T* x = xs.norm(at.index, 1, count);
  float sum = 0, squares = 0;
  for_packs<kCount>(at, count, [&](int64_t i) {
    const P a = load<P>(x + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += widen(a.value[j]);
  });
  const float mean = row_sum<kWarpRow>(sum, scratch) / static_cast<float>(count);
  for_packs<kCount>(at, count, [&](int64_t i) {
    const P a = load<P>(x + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) squares = fmaf(widen(a.value[j]) - mean, widen(a.value[j]) - mean, squares);
  });
  const float scale = 1.f / sqrtf(row_sum<kWarpRow>(squares, scratch) / static_cast<float>(count) + eps);
  let_next_start();
  T* out = outs.norm(at.index, 1, count);
  for_packs<kCount>(at, count, [&](int64_t i) {
    const P a = load<P>(x + i);
    P result;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      result.value[j] = narrow<T>(fmaf((widen(a.value[j]) - mean) * scale, weight[i + j], bias[i + j]));
    store(out + i, result);
  });
}

struct Shape {
  dim3 grid, block;
};

Shape shape_of(int64_t norms, int64_t count, int pack, bool warp_row) {
  if (warp_row)
    return {static_cast<unsigned>(ceil_div(norms, kWarpsPerBlock)), static_cast<unsigned>(kWarp * kWarpsPerBlock)};
  const int64_t threads = ceil_div(ceil_div(count, pack), kWarp) * kWarp;
  return {static_cast<unsigned>(norms), static_cast<unsigned>(threads < 1024 ? threads : 1024)};
}

template <class T>
bool fits(const CudaMatrix& m) {
  return m.data == nullptr || is_aligned(m.data, m.stride * int64_t{sizeof(T)}, 16);
}

template <class T, int kCount, bool kWarpRow>
int rms_as(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& residual, const float* weight, float eps,
           int64_t group, const CudaMatrix& total, const CudaMatrix& out) {
  const int64_t groups = x.cols / group, norms = x.rows * groups;
  const Shape shape = shape_of(norms, group, kCount, kWarpRow);
  const bool add = residual.data != nullptr;
  return launch(target, add ? rms_rows<T, kCount, kWarpRow, true> : rms_rows<T, kCount, kWarpRow, false>, shape.grid,
                shape.block, 0, Rows<const T, kCount>{static_cast<const T*>(x.data), x.stride},
                Rows<const T, kCount>{static_cast<const T*>(residual.data), residual.stride}, weight, eps, norms,
                groups, group, Rows<T, kCount>{static_cast<T*>(total.data), total.stride},
                Rows<T, kCount>{static_cast<T*>(out.data), out.stride});
}

template <class T, int kCount, bool kWarpRow>
int layer_as(const CudaTarget& target, const CudaMatrix& x, const float* weight, const float* bias, float eps,
             const CudaMatrix& out) {
  const Shape shape = shape_of(x.rows, x.cols, kCount, kWarpRow);
  return launch(target, layer_rows<T, kCount, kWarpRow>, shape.grid, shape.block, 0,
                Rows<const T, kCount>{static_cast<const T*>(x.data), x.stride}, weight, bias, eps, x.rows, x.cols,
                Rows<T, kCount>{static_cast<T*>(out.data), out.stride});
}

// f.operator()<T, elements a thread moves at once, a warp a row>().
template <class F>
int dispatch(DType dtype, bool packed, bool warp_row, F&& f) {
  const auto with = [&]<class T, int kCount>() {
    return warp_row ? f.template operator()<T, kCount, true>() : f.template operator()<T, kCount, false>();
  };
  if (dtype == DType::kBF16)
    return packed ? with.template operator()<__nv_bfloat16, 8>() : with.template operator()<__nv_bfloat16, 1>();
  return packed ? with.template operator()<float, 4>() : with.template operator()<float, 1>();
}

template <class... Matrices>
bool packs(DType dtype, int64_t group, const Matrices&... matrices) {
  return dtype == DType::kBF16 ? group % 8 == 0 && (fits<__nv_bfloat16>(matrices) && ...)
                               : group % 4 == 0 && (fits<float>(matrices) && ...);
}

}  // namespace

int rms_norm(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& residual, const float* weight, float eps,
             int64_t group, const CudaMatrix& total, const CudaMatrix& out) {
  return dispatch(x.dtype, packs(x.dtype, group, x, residual, total, out), group <= kWarpRowMax,
                  [&]<class T, int kCount, bool kWarpRow>() {
                    return rms_as<T, kCount, kWarpRow>(target, x, residual, weight, eps, group, total, out);
                  });
}

int layer_norm(const CudaTarget& target, const CudaMatrix& x, const float* weight, const float* bias, float eps,
               const CudaMatrix& out) {
  return dispatch(x.dtype, packs(x.dtype, x.cols, x, out), x.cols <= kWarpRowMax,
                  [&]<class T, int kCount, bool kWarpRow>() {
                    return layer_as<T, kCount, kWarpRow>(target, x, weight, bias, eps, out);
                  });
}

}  // namespace bolide::cuda
