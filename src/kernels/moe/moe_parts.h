// Kernel rows of the files of this folder; moe.cc puts them into the list.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> moe_product_kernels();
extern const Kernel kMoeRef;

}  // namespace bolide
