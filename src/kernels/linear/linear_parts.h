// Kernel rows of the files of this folder; linear.cc puts them into the list.
#pragma once

#include "kernels/kernel.h"

namespace bolide {

extern const Kernel kLinearRef;

}  // namespace bolide
