// MoeFfn on a GPU: weights of every type as the checkpoint has them, input and output f32 or bf16.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Each expert's rows are read once for each token that goes to it: right for any shape, slow for long prompts.
std::span<const Kernel> moe_cuda_kernels();

}  // namespace bolide
