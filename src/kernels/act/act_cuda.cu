// A thread has eight neighbours of a row where rows are aligned for that: bound by memory.
#include "kernels/act/act_cuda.cuh"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Rows {
  T* data;
  int64_t stride;
};

template <Elementwise kFunction, class X, class Y, class Out, int kCount>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(Rows<const X> x, Rows<const Y> y, Rows<Out> out, int64_t width) {
  wait_for_previous();
  let_next_start();
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount;
  if (column >= width) return;
  const int64_t row = blockIdx.x;
  const auto a = load<Pack<X, kCount>>(x.data + row * x.stride + column);
  Pack<Y, kCount> b{};
  if (y.data != nullptr) b = load<Pack<Y, kCount>>(y.data + row * y.stride + column);
  Pack<Out, kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kFunction == Elementwise::kAdd) {
      result.value[i] = narrow<Out>(widen(a.value[i]) + widen(b.value[i]));
    } else {
      const float act = activate < kFunction, sizeof(Out) == 2 > (widen(a.value[i]));
      result.value[i] = narrow<Out>(y.data != nullptr ? act * widen(b.value[i]) : act);
    }
  }
  store(out.data + row * out.stride + column, result);
}

template <Elementwise kFunction, class X, class Y, class Out>
int elementwise_as(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& y, const CudaMatrix& out) {
  constexpr int kCount = 8;
  const auto fits = [](const CudaMatrix& m, int64_t size) {
    return is_aligned(m.data, m.stride * size, kCount * size);
  };
  const bool packed = out.cols % kCount == 0 && fits(x, sizeof(X)) && fits(y, sizeof(Y)) && fits(out, sizeof(Out));
  const dim3 grid(static_cast<unsigned>(out.rows),
                  static_cast<unsigned>(ceil_div(out.cols, kThreads * (packed ? kCount : 1))));
  return launch(target,
                packed ? elementwise_kernel<kFunction, X, Y, Out, kCount> : elementwise_kernel<kFunction, X, Y, Out, 1>,
                grid, kThreads, 0, Rows<const X>{static_cast<const X*>(x.data), x.stride},
                Rows<const Y>{static_cast<const Y*>(y.data), y.stride},
                Rows<Out>{static_cast<Out*>(out.data), out.stride}, out.cols);
}

template <Elementwise kFunction>
int elementwise_of(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& y, const CudaMatrix& out) {
  const bool narrow_x = x.dtype == DType::kBF16, narrow_out = out.dtype == DType::kBF16;
  // Without a second operand its type is the first one's.
  const bool narrow_y = y.data != nullptr ? y.dtype == DType::kBF16 : narrow_x;
  const auto run = [&]<class X, class Y, class Out>() {
    return elementwise_as<kFunction, X, Y, Out>(target, x, y, out);
  };
  using B = __nv_bfloat16;
  if (narrow_x) {
    if (narrow_y) return narrow_out ? run.template operator()<B, B, B>() : run.template operator()<B, B, float>();
    return narrow_out ? run.template operator()<B, float, B>() : run.template operator()<B, float, float>();
  }
  if (narrow_y) return narrow_out ? run.template operator()<float, B, B>() : run.template operator()<float, B, float>();
  return narrow_out ? run.template operator()<float, float, B>() : run.template operator()<float, float, float>();
}

}  // namespace

int elementwise(const CudaTarget& target, Elementwise function, const CudaMatrix& x, const CudaMatrix& y,
                const CudaMatrix& out) {
  switch (function) {
    case Elementwise::kSilu: return elementwise_of<Elementwise::kSilu>(target, x, y, out);
    case Elementwise::kGelu: return elementwise_of<Elementwise::kGelu>(target, x, y, out);
    case Elementwise::kGeluTanh: return elementwise_of<Elementwise::kGeluTanh>(target, x, y, out);
    case Elementwise::kRelu: return elementwise_of<Elementwise::kRelu>(target, x, y, out);
    case Elementwise::kAdd: return elementwise_of<Elementwise::kAdd>(target, x, y, out);
  }
  return cudaErrorInvalidValue;
}

}  // namespace bolide::cuda
