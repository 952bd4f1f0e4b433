// What linear_cuda.cc and the .cu files of products share; MoeFfn's kernels are made of them too.
#pragma once

#include "kernels/common/cuda_target.h"
#include "kernels/common/weight_kind.h"

namespace bolide::cuda {

// out[t][i] = sum_k x[t][k] weight[i][k] * scale[i] + bias[i] + residual[t][i], f32 FMA; x as it is (see round_rows).
struct CudaProduct {
  CudaWeight weight;             // one matrix [n, k]
  CudaMatrix x;                  // f32 or bf16
  CudaMatrix out;                // f32 or bf16
  const float* scale = nullptr;  // null: 1
  const float* bias = nullptr;
  CudaMatrix residual;  // data null: none
  // Experts: row t of out takes row t / share of x and matrix experts[t] of the weight; null: row t and the matrix.
  const int32_t* experts = nullptr;
  int share = 1;
};

// A warp has a row of the weight and up to four tokens. The order of a sum depends on K and the alignment of its rows
// alone.
int product_rows(const CudaTarget& target, const CudaProduct& product);
// Blocks have 64 rows of the weight and 64 tokens: for many tokens. No experts.
int product_tiles(const CudaTarget& target, const CudaProduct& product);

// Of their families; product_rows and product_tiles choose.
int product_floats(const CudaTarget& target, const CudaProduct& product, bool tiles);
int product_blocks32(const CudaTarget& target, const CudaProduct& product, bool tiles);
int product_blocks_w4(const CudaTarget& target, const CudaProduct& product, bool tiles);
int product_blocks256(const CudaTarget& target, const CudaProduct& product, bool tiles);

// What Compute and InputRounding do to a product's input (kernels/linear/rounding.h), bit for bit but that an int8 code
// times its scale is rounded to f32. out: f32, or bf16 where the result is representable.
enum class RoundTo : uint8_t { kNothing, kBF16, kInt8 };
int round_rows(const CudaTarget& target, const CudaMatrix& x, bool f8_token, RoundTo round_to, const CudaMatrix& out);

}  // namespace bolide::cuda
