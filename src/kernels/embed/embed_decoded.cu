// Embed from rows that are decoded, eight elements a thread.
#include "kernels/common/cuda_decode.cuh"
#include "kernels/embed/embed_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 128;

template <class W, class Out>
__global__ void __launch_bounds__(kThreads) embed_units(const int32_t* ids, Bytes table, int64_t table_rows,
                                                        int64_t row_bytes, Out* out, int64_t out_stride, int width) {
  wait_for_previous();
  let_next_start();
  const int unit = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int left = width - unit * kUnit, valid = left < kUnit ? left : kUnit;
  if (valid <= 0) return;
  const int32_t id = ids[blockIdx.x];
  float values[kUnit];
  if (id >= 0 && id < table_rows) {
    W::unit(table + id * row_bytes, unit, valid, false, values);
  } else {
#pragma unroll
    for (int i = 0; i < kUnit; ++i) values[i] = __int_as_float(0x7fc00000);
  }
  Out* to = out + int64_t{blockIdx.x} * out_stride + unit * kUnit;
#pragma unroll
  for (int i = 0; i < kUnit; ++i)
    if (i < valid) to[i] = narrow<Out>(values[i]);
}

template <class W, class Out>
int embed_as(const CudaTarget& target, const int32_t* ids, const CudaWeight& table, const CudaMatrix& out) {
  const dim3 grid(static_cast<unsigned>(out.rows),
                  static_cast<unsigned>(ceil_div(ceil_div(out.cols, kUnit), kThreads)));
  return launch(target, embed_units<W, Out>, grid, kThreads, 0, ids, static_cast<Bytes>(table.data), table.rows,
                table.row_bytes, static_cast<Out*>(out.data), out.stride, static_cast<int>(out.cols));
}

}  // namespace

int embed_decoded(const CudaTarget& target, const int32_t* ids, const CudaWeight& table, const CudaMatrix& out) {
  const auto run = [&]<class W>() {
    return out.dtype == DType::kBF16 ? embed_as<W, __nv_bfloat16>(target, ids, table, out)
                                     : embed_as<W, float>(target, ids, table, out);
  };
  if (table.kind <= WeightKind::kI8) return dispatch_floats(table.kind, run);
  if (table.kind <= WeightKind::kBlockIQ4_NL) return dispatch_blocks32(table.kind, run);
  if (table.kind <= WeightKind::kBlockIQ4_XS) return dispatch_blocks256(table.kind, run);
  return dispatch_blocks_w4(table.kind, run);
}

}  // namespace bolide::cuda
