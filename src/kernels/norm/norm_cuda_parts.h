// What norm_cuda.cc and norm_cuda.cu share.
#pragma once

#include "kernels/common/cuda_target.h"

namespace bolide::cuda {

// One norm for each `group` neighbours of a row; group divides the columns. residual.data null: none. With a residual,
// total = x + residual is stored, and its norm is that of the stored sum.
int rms_norm(const CudaTarget& target, const CudaMatrix& x, const CudaMatrix& residual, const float* weight, float eps,
             int64_t group, const CudaMatrix& total, const CudaMatrix& out);
int layer_norm(const CudaTarget& target, const CudaMatrix& x, const float* weight, const float* bias, float eps,
               const CudaMatrix& out);

}  // namespace bolide::cuda
