#include "kernels/linear/gemv_block_formats.cuh"
#include "kernels/linear/gemv_launch.cuh"

namespace bolide::cuda {

int gemv_q45_k(const CudaTarget& target, const GemvWork* works, int count) {
  return works->weight.format == GemvFormat::kQ4_K ? gemv_as<GemvQ45_K<false>>(target, works, count)
                                                   : gemv_as<GemvQ45_K<true>>(target, works, count);
}

}  // namespace bolide::cuda
