// Elementwise ops with broadcasting, which copies, casts, transposes and slices are too.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// Offsets in 32 bits: the host has checked that all fit.
template <class C>
__global__ void __launch_bounds__(kThreads) elements_kernel(const __grid_constant__ ElementsJob job, uint32_t count) {
  wait_for_previous();
  let_next_start();
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    uint32_t rest = i;
    int64_t at[4] = {};
    for (int d = job.rank - 1; d >= 0; --d) {
      const auto dim = static_cast<uint32_t>(job.dims[d]);
      const uint32_t index = d == 0 ? rest : rest % dim;
      if (d != 0) rest /= dim;
      for (int k = 0; k < job.inputs; ++k) at[k] += index * job.in[k].strides[d];
      at[3] += index * job.out.strides[d];
    }
    const C a = load_as<C>(job.in[0].data, job.in[0].dtype, at[0]);
    C y;
    if (job.inputs == 1) {
      y = apply<C>(job.element, a, a);
    } else {
      const C b = load_as<C>(job.in[1].data, job.in[1].dtype, at[1]);
      if (job.inputs == 2)
        y = apply<C>(job.element, a, b);
      else
        y = a != C(0) ? b : load_as<C>(job.in[2].data, job.in[2].dtype, at[2]);
    }
    store_as<C>(job.out.data, job.out.dtype, at[3], y);
  }
}

struct Rows {
  const void *a, *b;
  void* out;
  int64_t stride_a, stride_b, stride_out;  // elements between rows
  uint32_t row;                            // packs in one
};

// Rows of elements that run on, all of T.
template <class T>
__global__ void __launch_bounds__(kThreads) packed_kernel(Element e, int inputs, Rows rows, uint32_t packs) {
  constexpr int kPack = 16 / sizeof(T);
  wait_for_previous();
  let_next_start();
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < packs; i += gridDim.x * kThreads) {
    const int64_t row = i / rows.row, column = static_cast<int64_t>(i % rows.row) * kPack;
    const auto x = load<Pack<T>>(static_cast<const T*>(rows.a) + row * rows.stride_a + column);
    Pack<T> y, z = x;
    if (inputs == 2) z = load<Pack<T>>(static_cast<const T*>(rows.b) + row * rows.stride_b + column);
    if (e.op == ElementOp::kAdd) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) y.value[k] = narrow_to<T>(widen(x.value[k]) + widen(z.value[k]));
    } else if (e.op == ElementOp::kMul) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) y.value[k] = narrow_to<T>(widen(x.value[k]) * widen(z.value[k]));
    } else if (e.op == ElementOp::kGelu) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) y.value[k] = narrow_to<T>(gelu_quick(widen(x.value[k])));
    } else if (e.op == ElementOp::kCopy) {
      y = x;
    } else {
#pragma unroll
      for (int k = 0; k < kPack; ++k)
        y.value[k] = narrow_to<T>(apply_two_called(e.op, e.p, e.q, widen(x.value[k]), widen(z.value[k])));
    }
    store(static_cast<T*>(rows.out) + row * rows.stride_out + column, y);
  }
}

template <class T>
int run_packed(const CudaTarget& target, const ElementsJob& job, int64_t count) {
  constexpr int kPack = 16 / sizeof(T);
  const int64_t packs = count / kPack, row = job.dims[job.rank - 1];
  const auto stride = [&](const GeneralView& view) { return job.rank == 2 ? view.strides[0] : 0; };
  const Rows rows{job.in[0].data,
                  job.in[1].data,
                  job.out.data,
                  stride(job.in[0]),
                  stride(job.in[1]),
                  stride(job.out),
                  static_cast<uint32_t>(row / kPack)};
  const int64_t blocks = ceil_div(packs, kThreads);
  return launch(target, packed_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, job.element,
                job.inputs, rows, static_cast<uint32_t>(packs));
}

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// One or two axes, the last of which runs on in everything by packs of 16 bytes.
bool is_packed(const ElementsJob& job) {
  const int last = job.rank - 1, pack = is_half(job.out.dtype) ? 8 : 4;
  if (!job.floats || job.rank > 2 || job.inputs > 2 || job.element.op >= ElementOp::kEqual ||
      job.dims[last] % pack != 0)
    return false;
  const auto fits = [&](const GeneralView& view) {
    return view.dtype == job.out.dtype && view.strides[last] == 1 && is_aligned(view.data, 0, 16) &&
           (job.rank == 1 || view.strides[0] % pack == 0);
  };
  for (int k = 0; k < job.inputs; ++k)
    if (!fits(job.in[k])) return false;
  return fits(job.out);
}

}  // namespace
}  // namespace cuda

int run_elements(const CudaTarget& target, const ElementsJob& job) {
  int64_t count = 1;
  for (int d = 0; d < job.rank; ++d) count *= job.dims[d];
  if (count == 0) return cudaSuccess;
  if (cuda::is_packed(job)) {
    if (job.out.dtype == DType::kF16) return cuda::run_packed<__half>(target, job, count);
    if (job.out.dtype == DType::kBF16) return cuda::run_packed<__nv_bfloat16>(target, job, count);
    if (job.out.dtype == DType::kF32) return cuda::run_packed<float>(target, job, count);
  }
  const int64_t blocks = cuda::ceil_div(count, cuda::kThreads);
  const dim3 grid(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20));
  if (job.floats)
    return cuda::launch(target, cuda::elements_kernel<float>, grid, dim3(cuda::kThreads), 0, job,
                        static_cast<uint32_t>(count));
  return cuda::launch(target, cuda::elements_kernel<int64_t>, grid, dim3(cuda::kThreads), 0, job,
                      static_cast<uint32_t>(count));
}

}  // namespace bolide
