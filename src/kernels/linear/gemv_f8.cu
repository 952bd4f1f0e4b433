#include "kernels/linear/gemv_launch.cuh"

namespace bolide::cuda {

int gemv_f8(const CudaTarget& target, const GemvWork* works, int count) {
  return gemv_as<GemvBytes<DecodeF8E4M3>>(target, works, count);
}

}  // namespace bolide::cuda
