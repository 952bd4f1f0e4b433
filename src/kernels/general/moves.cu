// Layouts turned, rows and elements gathered, elements picked by maps.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kTile = 32, kRows = 8;

__global__ void __launch_bounds__(kTile* kRows) turn_kernel(const __grid_constant__ TurnJob job) {
  __shared__ float tile[kTile][kTile + 1];
  wait_for_previous();
  let_next_start();
  const int64_t row0 = int64_t{blockIdx.y} * kTile, column0 = int64_t{blockIdx.x} * kTile;
  for (int64_t batch = blockIdx.z; batch < job.batch; batch += gridDim.z) {
    for (int r = threadIdx.y; r < kTile; r += kRows) {
      const int64_t row = row0 + r, column = column0 + threadIdx.x;
      tile[r][threadIdx.x] = row < job.rows && column < job.columns
                                 ? load_as<float>(job.in, job.in_dtype, (batch * job.rows + row) * job.columns + column)
                                 : 0.f;
    }
    __syncthreads();
    for (int c = threadIdx.y; c < kTile; c += kRows) {
      const int64_t row = row0 + threadIdx.x, column = column0 + c;
      if (row < job.padded && column < job.columns)
        store_as<float>(job.out, job.out_dtype, (batch * job.columns + column) * job.padded + row,
                        tile[threadIdx.x][c]);
    }
    __syncthreads();
  }
}

// Few rows (the colours of a picture): a thread a column.
template <class In, class Out, int kPadded>
__global__ void __launch_bounds__(256)
    turn_few_kernel(const In* in, Out* out, int64_t batch, int rows, int64_t columns) {
  wait_for_previous();
  let_next_start();
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < batch * columns; i += int64_t{gridDim.x} * 256) {
    const int64_t image = i / columns, column = i % columns;
    Pack<Out, kPadded> pack;
#pragma unroll
    for (int r = 0; r < kPadded; ++r)
      pack.value[r] = narrow_to<Out>(r < rows ? widen(in[(image * rows + r) * columns + column]) : 0.f);
    store(out + i * kPadded, pack);
  }
}

template <class In, class Out>
int run_few(const CudaTarget& target, const TurnJob& job) {
  const int64_t blocks = ceil_div(job.batch * job.columns, 256);
  return launch(target, turn_few_kernel<In, Out, 4>, dim3(static_cast<unsigned>(blocks)), dim3(256), 0,
                static_cast<const In*>(job.in), static_cast<Out*>(job.out), job.batch, static_cast<int>(job.rows),
                job.columns);
}

template <class W>
__global__ void __launch_bounds__(256) gather_kernel(const __grid_constant__ GatherJob job, int64_t words) {
  wait_for_previous();
  let_next_start();
  const int64_t total = job.outer * job.count * words;
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < total; i += int64_t{gridDim.x} * 256) {
    const int64_t word = i % words, row = i / words, k = row % job.count, outer = row / job.count;
    int64_t index =
        job.wide ? static_cast<const int64_t*>(job.indices)[k] : static_cast<const int32_t*>(job.indices)[k];
    if (index < 0) index += job.axis;
    W value{};
    if (index >= 0 && index < job.axis)
      value = static_cast<const W*>(job.data)[(outer * job.axis + index) * words + word];
    else
      *job.fault = job.mark;
    static_cast<W*>(job.out)[i] = value;
  }
}

template <class W>
int run_words(const CudaTarget& target, const GatherJob& job, int64_t words) {
  const int64_t blocks = ceil_div(job.outer * job.count * words, 256);
  return launch(target, gather_kernel<W>, dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)), dim3(256),
                0, job, words);
}

template <class W>
__global__ void __launch_bounds__(256) mapped_kernel(const __grid_constant__ MappedJob job, int64_t count) {
  wait_for_previous();
  let_next_start();
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < count; i += int64_t{gridDim.x} * 256) {
    int64_t rest = i, from = 0, to = 0;
    bool there = true;
    for (int d = job.rank - 1; d >= 0; --d) {
      const int64_t index = rest % job.dims[d];
      rest /= job.dims[d];
      const int64_t at = job.maps[d] != nullptr ? job.maps[d][index] : index;
      there = there && at >= 0;
      from += at * job.in_strides[d];
      to += index * job.out_strides[d];
    }
    static_cast<W*>(job.out)[to] = there ? static_cast<const W*>(job.in)[from] : *reinterpret_cast<const W*>(job.fill);
  }
}

template <class W>
__global__ void __launch_bounds__(256)
    gather_elements_kernel(const __grid_constant__ GatherElementsJob job, int64_t count) {
  wait_for_previous();
  let_next_start();
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < count; i += int64_t{gridDim.x} * 256) {
    int64_t index =
        job.wide ? static_cast<const int64_t*>(job.indices)[i] : static_cast<const int32_t*>(job.indices)[i];
    if (index < 0) index += job.limit;
    W value{};
    if (index >= 0 && index < job.limit) {
      int64_t rest = i, from = index * job.data_strides[job.axis];
      for (int d = job.rank - 1; d >= 0; --d) {
        if (d != job.axis) from += rest % job.dims[d] * job.data_strides[d];
        rest /= job.dims[d];
      }
      value = static_cast<const W*>(job.data)[from];
    } else {
      *job.fault = job.mark;
    }
    static_cast<W*>(job.out)[i] = value;
  }
}

template <class W>
int run_elements_of(const CudaTarget& target, const GatherElementsJob& job) {
  int64_t count = 1;
  for (int d = 0; d < job.rank; ++d) count *= job.dims[d];
  if (count == 0) return cudaSuccess;
  const int64_t blocks = ceil_div(count, 256);
  return launch(target, gather_elements_kernel<W>, dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)),
                dim3(256), 0, job, count);
}

template <class W>
int run_map(const CudaTarget& target, const MappedJob& job) {
  int64_t count = 1;
  for (int d = 0; d < job.rank; ++d) count *= job.dims[d];
  const int64_t blocks = ceil_div(count, 256);
  return launch(target, mapped_kernel<W>, dim3(static_cast<unsigned>(blocks < 1 << 20 ? blocks : 1 << 20)), dim3(256),
                0, job, count);
}

}  // namespace
}  // namespace cuda

int run_turn(const CudaTarget& target, const TurnJob& job) {
  if (job.batch == 0 || job.rows == 0 || job.columns == 0) return cudaSuccess;
  if (job.padded == 4 && job.out_dtype == DType::kF16) {
    if (job.in_dtype == DType::kF32) return cuda::run_few<float, __half>(target, job);
    if (job.in_dtype == DType::kF16) return cuda::run_few<__half, __half>(target, job);
  }
  if (job.padded == 4 && job.out_dtype == DType::kBF16) {
    if (job.in_dtype == DType::kF32) return cuda::run_few<float, __nv_bfloat16>(target, job);
    if (job.in_dtype == DType::kBF16) return cuda::run_few<__nv_bfloat16, __nv_bfloat16>(target, job);
  }
  const dim3 grid(static_cast<unsigned>(cuda::ceil_div(job.columns, cuda::kTile)),
                  static_cast<unsigned>(cuda::ceil_div(job.padded, cuda::kTile)),
                  static_cast<unsigned>(job.batch < 65535 ? job.batch : 65535));
  return cuda::launch(target, cuda::turn_kernel, grid, dim3(cuda::kTile, cuda::kRows), 0, job);
}

int run_gather(const CudaTarget& target, const GatherJob& job) {
  const int64_t row = job.inner * job.bytes;
  if (job.outer * job.count * row == 0) return cudaSuccess;
  if (row % 16 == 0 && cuda::is_aligned(job.data, row, 16) && cuda::is_aligned(job.out, row, 16))
    return cuda::run_words<uint4>(target, job, row / 16);
  if (row % 4 == 0 && cuda::is_aligned(job.data, row, 4) && cuda::is_aligned(job.out, row, 4))
    return cuda::run_words<uint32_t>(target, job, row / 4);
  if (row % 2 == 0 && cuda::is_aligned(job.data, row, 2) && cuda::is_aligned(job.out, row, 2))
    return cuda::run_words<uint16_t>(target, job, row / 2);
  return cuda::run_words<uint8_t>(target, job, row);
}

int run_mapped(const CudaTarget& target, const MappedJob& job) {
  for (int d = 0; d < job.rank; ++d)
    if (job.dims[d] == 0) return cudaSuccess;
  switch (job.bytes) {
    case 1: return cuda::run_map<uint8_t>(target, job);
    case 2: return cuda::run_map<uint16_t>(target, job);
    case 4: return cuda::run_map<uint32_t>(target, job);
    case 8: return cuda::run_map<uint64_t>(target, job);
    default: return cuda::run_map<uint4>(target, job);
  }
}

int run_gather_elements(const CudaTarget& target, const GatherElementsJob& job) {
  switch (job.bytes) {
    case 1: return cuda::run_elements_of<uint8_t>(target, job);
    case 2: return cuda::run_elements_of<uint16_t>(target, job);
    case 4: return cuda::run_elements_of<uint32_t>(target, job);
    default: return cuda::run_elements_of<uint64_t>(target, job);
  }
}

}  // namespace bolide
