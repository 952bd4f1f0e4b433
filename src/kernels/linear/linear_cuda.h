// Linear on a GPU, for every weight type as the checkpoint has it: f32 FMA over decoded weights, whatever `compute`
// says of the activations. Input, residual and output f32 or bf16, each for itself. These kernels are what faster ones
// are checked against, and what runs when there is no faster one.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// linear_cuda takes tiles when there are many tokens, so a token's bits depend on how many there are;
// linear_rows_cuda never does.
std::span<const Kernel> linear_cuda_kernels();

}  // namespace bolide
