// RmsNorm, AddRmsNorm and LayerNorm on a GPU. Input, residual and result f32 or bf16, each for itself; AddRmsNorm's sum
// has the residual's type. Weights f32; sums in f32. Outputs may be the memory of inputs of their type.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> norm_cuda_kernels();

}  // namespace bolide
