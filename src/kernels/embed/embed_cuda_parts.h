// What embed_cuda.cc and embed_cuda.cu share.
#pragma once

#include "kernels/common/cuda_target.h"

namespace bolide::cuda {

// out[t] = table[ids[t]] for each row t of out.
int embed(const CudaTarget& target, const int32_t* ids, const CudaMatrix& table, const CudaMatrix& out);

}  // namespace bolide::cuda
