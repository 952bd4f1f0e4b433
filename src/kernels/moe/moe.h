// MoeFfn on the CPU.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, the reference last.
std::span<const Kernel> moe_kernels();

}  // namespace bolide
