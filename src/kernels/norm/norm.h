// RmsNorm, AddRmsNorm and LayerNorm.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, reference last. Outputs may be the inputs' own memory.
std::span<const Kernel> norm_kernels();

}  // namespace bolide
