#include "kernels/linear/gemv_block_formats.cuh"
#include "kernels/linear/gemv_launch.cuh"

namespace bolide::cuda {

int gemv_q6_k(const CudaTarget& target, const GemvWork* works, int count) {
  return gemv_as<GemvQ6_K>(target, works, count);
}

}  // namespace bolide::cuda
