// Embed on a GPU. Tables of every weight type; output f32 or bf16. An id outside the table gives a row of NaN.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> embed_cuda_kernels();

}  // namespace bolide
