// Packing of weights of 8-bit codes into strips of the same size (float_kernels.h).
#pragma once

#include "kernels/linear/float_strips.h"

namespace bolide {

// How a type is stored, one byte an element. False if these strips do not hold it.
bool code_shape(DType dtype, int64_t k, FloatShape* shape);

// "code_strips": f8e4m3 and int8; lossless.
extern const Packing kCodePacking;

}  // namespace bolide
