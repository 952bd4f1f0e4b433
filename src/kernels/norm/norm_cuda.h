// RmsNorm, AddRmsNorm and LayerNorm on a GPU. Activations all f32 or all bf16; weights f32; sums in f32. Outputs may be
// the inputs' own memory.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> norm_cuda_kernels();

}  // namespace bolide
