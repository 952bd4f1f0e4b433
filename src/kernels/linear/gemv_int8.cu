#include "kernels/linear/gemv_launch.cuh"

namespace bolide::cuda {

int gemv_int8(const CudaTarget& target, const GemvWork* works, int count) {
  return gemv_as<GemvBytes<DecodeInt8>>(target, works, count);
}

}  // namespace bolide::cuda
