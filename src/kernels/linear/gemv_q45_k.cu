#include "kernels/linear/gemv_block_formats.cuh"
#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_q45_k(const CudaTarget& target, const GemvWork& work) {
  return work.weight.format == GemvFormat::kQ4_K ? gemv_as<GemvQ45_K<false>>(target, work)
                                                 : gemv_as<GemvQ45_K<true>>(target, work);
}

}  // namespace bolide::cuda
