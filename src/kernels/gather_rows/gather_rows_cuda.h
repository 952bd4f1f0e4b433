// GatherRows on a GPU. Input and output f32 or bf16, each for itself. A row outside the input gives a row of NaN.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> gather_rows_cuda_kernels();

}  // namespace bolide
