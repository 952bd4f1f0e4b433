#include "kernels/linear/gemv_block_formats.cuh"
#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_q6_k(const CudaTarget& target, const GemvWork& work) { return gemv_as<GemvQ6_K>(target, work); }

}  // namespace bolide::cuda
