#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_w4(const CudaTarget& target, const GemvWork& work) {
  return work.weight.format == GemvFormat::kW4G128 ? gemv_as<GemvW4<128>>(target, work)
                                                   : gemv_as<GemvW4<32>>(target, work);
}

}  // namespace bolide::cuda
