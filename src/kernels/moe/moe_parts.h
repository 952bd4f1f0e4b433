// Kernel rows of the files of this folder; moe.cc puts them into the list.
#pragma once

#include "kernels/kernel.h"

namespace bolide {

extern const Kernel kMoeRef;

}  // namespace bolide
