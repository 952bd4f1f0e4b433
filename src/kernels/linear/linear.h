// Linear on the CPU: kernels and the packings that they read. README.md tells the layouts and who promises what.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, the reference last.
std::span<const Kernel> linear_kernels();

}  // namespace bolide
