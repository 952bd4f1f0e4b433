#include "kernels/linear/gemv_launch.cuh"

namespace bolide::cuda {

int gemv_bf16(const CudaTarget& target, const GemvWork* works, int count) {
  return gemv_as<GemvBF16>(target, works, count);
}

}  // namespace bolide::cuda
