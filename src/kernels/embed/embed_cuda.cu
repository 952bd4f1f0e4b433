// A block moves a piece of one token's row, eight elements a thread where the rows are aligned for it: 16 bytes of a
// 16-bit table. One row is bound by latency: the id, then the table.
#include <math_constants.h>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/embed/embed_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 128;

template <class In, class Out, int kCount>
__global__ void __launch_bounds__(kThreads)
    embed_rows(const int32_t* ids, const In* table, int64_t table_rows, int64_t table_stride, Out* out,
               int64_t out_stride, int64_t width) {
  let_next_start();
  wait_for_previous();
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount;
  if (column >= width) return;
  const int32_t id = ids[blockIdx.x];
  Pack<Out, kCount> result;
  if (id >= 0 && id < table_rows) {
    const auto pack = load<Pack<In, kCount>>(table + id * table_stride + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.value[i] = narrow<Out>(widen(pack.value[i]));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.value[i] = narrow<Out>(CUDART_NAN_F);
  }
  store(out + int64_t{blockIdx.x} * out_stride + column, result);
}

template <class In, class Out>
int embed_as(const CudaTarget& target, const int32_t* ids, const CudaMatrix& table, const CudaMatrix& out) {
  constexpr int kCount = 8;
  const bool packed = out.cols % kCount == 0 &&
                      is_aligned(table.data, table.stride * int64_t{sizeof(In)}, kCount * int64_t{sizeof(In)}) &&
                      is_aligned(out.data, out.stride * int64_t{sizeof(Out)}, kCount * int64_t{sizeof(Out)});
  const dim3 grid(static_cast<unsigned>(out.rows),
                  static_cast<unsigned>(ceil_div(out.cols, kThreads * (packed ? kCount : 1))));
  return launch(target, packed ? embed_rows<In, Out, kCount> : embed_rows<In, Out, 1>, grid, kThreads, 0, ids,
                static_cast<const In*>(table.data), table.rows, table.stride, static_cast<Out*>(out.data), out.stride,
                out.cols);
}

template <class In>
int embed_from(const CudaTarget& target, const int32_t* ids, const CudaMatrix& table, const CudaMatrix& out) {
  return out.dtype == DType::kBF16 ? embed_as<In, __nv_bfloat16>(target, ids, table, out)
                                   : embed_as<In, float>(target, ids, table, out);
}

}  // namespace

int embed(const CudaTarget& target, const int32_t* ids, const CudaMatrix& table, const CudaMatrix& out) {
  switch (table.dtype) {
    case DType::kF32: return embed_from<float>(target, ids, table, out);
    case DType::kF16: return embed_from<__half>(target, ids, table, out);
    case DType::kBF16: return embed_from<__nv_bfloat16>(target, ids, table, out);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bolide::cuda
