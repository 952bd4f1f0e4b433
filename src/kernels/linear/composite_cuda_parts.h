// What cublaslt_cuda.cc, gemv_cuda.cc and composite_cuda.cu share: what happens around a product.
#pragma once

#include "kernels/common/cuda_target.h"
#include "kernels/common/weight_kind.h"

namespace bolide::cuda {

// Weights in pieces (gemv_layout.h) instead of the checkpoint's rows; groups_from 0: they are not.
struct DecodedWeight {
  CudaWeight rows;
  int64_t groups_from = 0;
};
// Rows [first, first + out.rows) of the weight, times scale[row] if there are scales, rounded to bf16. K is a multiple
// of 8.
int dequantise_rows(const CudaTarget& target, const DecodedWeight& weight, int64_t first, const float* scale,
                    const CudaMatrix& out);

// Codes f8e4m3 [T, K] and scales [T] of x or, with a gain, of RmsNorm(x): s = max(max|x| / 448, 2^-23), code = x / s
// rounded to nearest even, at most 448 in size. codes: rows without gaps of f8e4m3, or of bf16, which has all codes.
int quantise_rows(const CudaTarget& target, const CudaMatrix& x, const float* gain, float eps, const CudaMatrix& codes,
                  float* scales);

// out = sums * x_scale[t] * weight_scale[i] + bias[i] + residual; null: none.
struct ScaledSums {
  CudaMatrix sums;  // f32
  const float *x_scale = nullptr, *weight_scale = nullptr, *bias = nullptr;
  CudaMatrix residual;  // of out's type
};
int scale_sums(const CudaTarget& target, const ScaledSums& work, const CudaMatrix& out);

int fill_ones(const CudaTarget& target, float* values, int64_t count);

}  // namespace bolide::cuda
