#include "kernels/linear/gemv_block_formats.cuh"
#include "kernels/linear/gemv_launch.cuh"

namespace bolide::cuda {

int gemv_q4(const CudaTarget& target, const GemvWork* works, int count) {
  return works->weight.format == GemvFormat::kQ4_0 ? gemv_as<GemvQ4_0>(target, works, count)
                                                   : gemv_as<GemvQ4_1>(target, works, count);
}

}  // namespace bolide::cuda
