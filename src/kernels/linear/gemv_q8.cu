#include "kernels/linear/gemv_block_formats.cuh"
#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_q8(const CudaTarget& target, const GemvWork& work) { return gemv_as<GemvQ8_0>(target, work); }

}  // namespace bolide::cuda
