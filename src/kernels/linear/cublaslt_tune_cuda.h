// Which of cuBLASLt's algorithms is fastest for a product: the products of cublaslt_cuda.cc, on random data.
#pragma once

#include <memory>
#include <string>

#include "kernels/tunable.h"
#include "tensor/dtype.h"

namespace bolide {

// A Matmul (device/cuda/matmul.h) without its memory.
struct MatmulShape {
  int64_t tokens = 0, n = 0, k = 0;
  DType in = DType::kBF16, out = DType::kBF16;
  bool has_bias = false, has_residual = false, has_scales = false;
};

// "bf16 [4096, 4096] to f32, bias, residual, 512 tokens"; tokens are rounded up to a power of two.
std::string key_of(const MatmulShape& shape);

// The device is a GPU with cuBLASLt. Memory: the operands, the weight as often as it takes to leave no cache warm.
Result<std::unique_ptr<Tunable>> tunable_matmul(const MatmulShape& shape, Device& device);

}  // namespace bolide
