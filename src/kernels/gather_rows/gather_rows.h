// GatherRows: rows of activations by number.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// One kernel: memory bandwidth is its only cost. A row outside the input: kInternal.
std::span<const Kernel> gather_rows_kernels();

}  // namespace bolide
