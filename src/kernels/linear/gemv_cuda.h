// Linear and QkvRope of up to 16 tokens on a GPU: a stream of weights (gemv_cuda.cuh). x bf16, or f32 with a norm;
// weights bf16, f8e4m3 and int8 with a scale a row, w4_*; results f32 or bf16.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> gemv_cuda_kernels();

}  // namespace bolide
