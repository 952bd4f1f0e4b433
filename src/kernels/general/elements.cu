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

// All of T, one after the other; operand k repeats after period[k] elements (a multiple of the pack, or the count).
template <class T>
__global__ void __launch_bounds__(kThreads)
    packed_kernel(Element e, int inputs, const T* a, const T* b, uint32_t period, T* out, uint32_t packs) {
  constexpr int kPack = 16 / sizeof(T);
  wait_for_previous();
  let_next_start();
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < packs; i += gridDim.x * kThreads) {
    const auto x = load<Pack<T>>(a + size_t{i} * kPack);
    Pack<T> y, z = x;
    if (inputs == 2) z = load<Pack<T>>(b + size_t{i % period} * kPack);
    if (e.op == ElementOp::kAdd) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) y.value[k] = narrow_to<T>(widen(x.value[k]) + widen(z.value[k]));
    } else if (e.op == ElementOp::kMul) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) y.value[k] = narrow_to<T>(widen(x.value[k]) * widen(z.value[k]));
    } else if (e.op == ElementOp::kCopy) {
      y = x;
    } else {
#pragma unroll
      for (int k = 0; k < kPack; ++k)
        y.value[k] = narrow_to<T>(apply_two_called(e.op, e.p, e.q, widen(x.value[k]), widen(z.value[k])));
    }
    store(out + size_t{i} * kPack, y);
  }
}

template <class T>
int run_packed(const CudaTarget& target, const ElementsJob& job, int64_t count, int64_t period) {
  constexpr int kPack = 16 / sizeof(T);
  const int64_t packs = count / kPack;
  const auto blocks = static_cast<unsigned>(ceil_div(packs, kThreads));
  return launch(target, packed_kernel<T>, dim3(blocks), dim3(kThreads), 0, job.element, job.inputs,
                static_cast<const T*>(job.in[0].data), static_cast<const T*>(job.in[1].data),
                static_cast<uint32_t>(period / kPack), static_cast<T*>(job.out.data), static_cast<uint32_t>(packs));
}

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// Operand 1 repeats after so many elements, everything else runs on; 0: it is otherwise.
int64_t period_of(const ElementsJob& job, int64_t count) {
  const int last = job.rank - 1;
  if (!job.floats || job.rank > 2 || job.inputs > 2 || job.element.op >= ElementOp::kEqual) return 0;
  for (int k = 0; k < job.inputs; ++k)
    if (job.in[k].dtype != job.out.dtype || job.in[k].strides[last] != 1 || !is_aligned(job.in[k].data, 0, 16)) return 0;
  if (job.out.strides[last] != 1 || !is_aligned(job.out.data, 0, 16)) return 0;
  if (job.rank == 1) return count;
  const int64_t row = job.dims[1];
  const bool runs = job.in[0].strides[0] == row && job.out.strides[0] == row;
  return runs && job.inputs == 2 && job.in[1].strides[0] == 0 ? row : 0;
}

}  // namespace
}  // namespace cuda

int run_elements(const CudaTarget& target, const ElementsJob& job) {
  int64_t count = 1;
  for (int d = 0; d < job.rank; ++d) count *= job.dims[d];
  if (count == 0) return cudaSuccess;
  const int64_t period = cuda::period_of(job, count);
  const int64_t pack = cuda::is_half(job.out.dtype) ? 8 : 4;
  if (period > 0 && period % pack == 0 && count % pack == 0) {
    if (job.out.dtype == DType::kF16) return cuda::run_packed<__half>(target, job, count, period);
    if (job.out.dtype == DType::kBF16) return cuda::run_packed<__nv_bfloat16>(target, job, count, period);
    if (job.out.dtype == DType::kF32) return cuda::run_packed<float>(target, job, count, period);
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
