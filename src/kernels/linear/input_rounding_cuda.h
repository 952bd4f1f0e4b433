// How a product's input is rounded on a GPU: for *_cuda.cc files.
#pragma once

#include "ir/ops.h"
#include "kernels/linear/linear_cuda_parts.h"

namespace bolide {

// What `compute` and `rounding` ask for, given the type in which the input comes.
struct CudaInputRounding {
  bool f8_token = false;
  cuda::RoundTo round_to = cuda::RoundTo::kNothing;

  CudaInputRounding(Compute compute, InputRounding rounding, DType input)
      : f8_token(rounding == InputRounding::kF8Token) {
    if (compute == Compute::kInt8) round_to = cuda::RoundTo::kInt8;
    if (compute == Compute::kBF16 && (f8_token || input != DType::kBF16)) round_to = cuda::RoundTo::kBF16;
  }
  // False: the input is multiplied as it is.
  bool needed() const { return f8_token || round_to != cuda::RoundTo::kNothing; }
  DType dtype() const { return round_to == cuda::RoundTo::kBF16 ? DType::kBF16 : DType::kF32; }
  size_t bytes(int64_t rows, int64_t k) const {
    return needed() ? static_cast<size_t>(rows * k) * (dtype() == DType::kBF16 ? 2 : 4) : 0;
  }
  // The matrix at `memory` that the rounded input goes to.
  CudaMatrix matrix(std::byte* memory, int64_t rows, int64_t k) const { return {memory, dtype(), rows, k, k}; }
};

}  // namespace bolide
