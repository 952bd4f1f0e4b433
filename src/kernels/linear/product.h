// Products of activations with one packed matrix: what Linear and MoeFfn are made of. A ProductMethod is one way to do
// it on one instruction set; each Linear kernel row is one method.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// out[t][i] = finish(sum_k x[row t][k] weight[i][k] * scale[i] + bias[i] + residual[t][i])
struct Product {
  DType dtype = DType::kNone;  // of the weight
  const QuantScheme* quant = nullptr;
  int64_t n = 0, k = 0;
  const std::byte* weights = nullptr;  // packed by the method's packing: one matrix
  Compute compute = Compute::kF32;
  InputRounding rounding = InputRounding::kNone;
  int64_t tokens = 0;
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // [tokens] rows of x; null: 0, 1, 2, ...
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* scale = nullptr;     // [n] or null
  const float* bias = nullptr;      // [n] or null
  const float* residual = nullptr;  // [tokens, n] or null
  int64_t residual_stride = 0;
  // What becomes of each finished piece of a row of out, in place; null: nothing.
  void (*finish)(float* piece, int64_t count) = nullptr;
  MutableBytes workspace;

  const float* row(int64_t t) const { return x + (x_rows != nullptr ? x_rows[t] : t) * x_stride; }
};

struct ProductMethod {
  std::string_view linear_name, moe_name;
  const Packing* packing;
  // `weight` has two dims or more; the last two are [n, k].
  bool (*supports)(const ValueType& weight, Compute compute, const DeviceInfo& device);
  // For any number of tokens up to tokens_max.
  size_t (*workspace)(const ValueType& weight, int64_t tokens_max, int threads);
  void (*run)(const Product& product, Workers& workers);
  // Bytes of one packed matrix of [n, k]: matrices of a three-dimensional weight follow each other.
  size_t (*matrix_bytes)(const ValueType& weight);
  // The methods of the same instruction set for Compute::kF32 with float and with block-quantised weights.
  const ProductMethod *exact_floats, *exact_blocks;
  bool batch_invariant = true;  // as in Kernel
};

// Fastest first. No method is the reference.
std::span<const ProductMethod* const> product_methods();

inline int64_t weight_n(const ValueType& weight) { return weight.dims[weight.dims.size() - 2].factor; }
inline int64_t weight_k(const ValueType& weight) { return weight.dims.back().factor; }

// The smallest of `tiles` (ascending) that covers `tokens` in as few tiles as its largest would.
int tile_for(std::span<const int> tiles, int64_t tokens);

// How a product of `strips` by `token_tiles` is cut into chunks for the pool.
struct ChunkPlan {
  int64_t strips_per_chunk, tiles_per_chunk;
  int64_t strip_chunks, tile_chunks;
  int64_t chunks() const { return strip_chunks * tile_chunks; }
};
// strip_bytes: weights of one strip; tile_flops: multiply-adds of one strip with one tile.
ChunkPlan plan_chunks(int64_t strips, int64_t token_tiles, size_t strip_bytes, int64_t tile_flops, int threads);

extern const ProductMethod kInt8Amx, kInt8Vnni, kInt8Avx2;
extern const ProductMethod kBf16Amx, kBf16Dot, kFloatAvx512, kFloatAvx2;
extern const ProductMethod kCodesAvx512, kCodesAvx2, kDecodedAvx512, kDecodedAvx2;

}  // namespace bolide
