// GatedAct, Activate and Add.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, reference last. Outputs may be the inputs' own memory where shapes are equal.
std::span<const Kernel> act_kernels();

}  // namespace bolide
