// What moe_cuda.cc and moe_cuda.cu share.
#pragma once

#include "kernels/common/cuda_target.h"

namespace bolide::cuda {

// choose_experts (routing.h) for each row of scores f32 [T, X], which is overwritten: experts and weights [T, top_k].
int choose_experts(const CudaTarget& target, const CudaMatrix& scores, int top_k, bool renormalise, int32_t* experts,
                   float* weights);

// out[t] = sum over j of weights[t][j] * parts[t * top_k + j]; parts f32.
int combine_experts(const CudaTarget& target, const CudaMatrix& parts, const float* weights, int top_k,
                    const CudaMatrix& out);

}  // namespace bolide::cuda
