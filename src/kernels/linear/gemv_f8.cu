#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_f8(const CudaTarget& target, const GemvWork& work) { return gemv_as<GemvBytes<DecodeF8E4M3>>(target, work); }

}  // namespace bolide::cuda
