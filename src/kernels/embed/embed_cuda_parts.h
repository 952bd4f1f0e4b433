// What embed_cuda.cc and the .cu files share; GatherRows' kernel is made of it too.
#pragma once

#include "kernels/common/cuda_target.h"
#include "kernels/common/weight_kind.h"

namespace bolide::cuda {

// out[t] = table[ids[t]] for each row t of out; tables of f32, f16 and bf16.
int embed(const CudaTarget& target, const int32_t* ids, const CudaMatrix& table, const CudaMatrix& out);
// Of every other weight type.
int embed_decoded(const CudaTarget& target, const int32_t* ids, const CudaWeight& table, const CudaMatrix& out);

}  // namespace bolide::cuda
