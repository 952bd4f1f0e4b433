// Packing of float weights into strips (float_kernels.h).
#pragma once

#include "kernels/kernel.h"
#include "kernels/linear/float_kernels.h"

namespace bolide {

struct FloatShape {
  FloatStorage storage;
  int64_t k;  // rounded up to even for kBF16
  size_t bytes;
};

// How a float type is stored; f8 types and int8 codes as bf16, which holds them exactly. False if strips do not hold
// it.
bool float_shape(DType dtype, int64_t k, FloatShape* shape);

// "float_strips": f32, f16, bf16, f8, int8; lossless.
extern const Packing kFloatPacking;

}  // namespace bolide
