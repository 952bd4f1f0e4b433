#include "kernels/linear/gemv_launch.cuh"

namespace bolide::cuda {

int gemv_w4(const CudaTarget& target, const GemvWork* works, int count) {
  return works->weight.format == GemvFormat::kW4G128 ? gemv_as<GemvW4<128>>(target, works, count)
                                                     : gemv_as<GemvW4<32>>(target, works, count);
}

}  // namespace bolide::cuda
