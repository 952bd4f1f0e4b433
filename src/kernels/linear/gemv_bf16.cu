#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_bf16(const CudaTarget& target, const GemvWork& work) { return gemv_as<GemvBF16>(target, work); }

}  // namespace bolide::cuda
