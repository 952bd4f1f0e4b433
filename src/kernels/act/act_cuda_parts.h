// What act_cuda.cc and act_cuda.cu share; MoeFfn's kernels are made of it too.
#pragma once

#include "kernels/common/cuda_target.h"

namespace bolide::cuda {

enum class Elementwise : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kAdd };

// out = act(x) * y, or act(x) if y.data is null; kAdd: out = x + y.
int elementwise(const CudaTarget& target, Elementwise function, const CudaMatrix& x, const CudaMatrix& y,
                const CudaMatrix& out);

}  // namespace bolide::cuda
