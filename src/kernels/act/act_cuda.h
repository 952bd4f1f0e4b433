// GatedAct, Activate and Add on a GPU. Each operand and the output f32 or bf16, for itself; outputs may be the inputs'
// own memory where their types are the same.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> act_cuda_kernels();

}  // namespace bolide
