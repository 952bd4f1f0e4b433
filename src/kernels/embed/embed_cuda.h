// Embed on a GPU. Tables f32, f16 and bf16; output f32 or bf16. An id outside the table gives a row of NaN.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> embed_cuda_kernels();

}  // namespace bolide
