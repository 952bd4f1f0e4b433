#include "kernels/linear/gemv_cuda.cuh"

namespace bolide::cuda {

int gemv_int8(const CudaTarget& target, const GemvWork& work) { return gemv_as<GemvBytes<DecodeInt8>>(target, work); }

}  // namespace bolide::cuda
