#include "kernels/linear/gemv_block_formats.cuh"
#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_q4(const CudaTarget& target, const GemvWork& work) {
  return work.weight.format == GemvFormat::kQ4_0 ? gemv_as<GemvQ4_0>(target, work) : gemv_as<GemvQ4_1>(target, work);
}

}  // namespace bolide::cuda
