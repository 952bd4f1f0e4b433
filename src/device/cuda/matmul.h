// Products of matrices by cuBLASLt: descriptors, its choice of an algorithm, and the call. No CUDA header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "tensor/dtype.h"

struct CUstream_st;

namespace bolide {

struct CublasLt;

// out [T, N] = x [T, K] weight [N, K]^T + bias [N] + residual [T, N], summed in f32. x and weight are both f16, both
// bf16 or both f8e4m3; out is f16 (of f16), bf16 or f32, and residual and bias are of out's type, but that f8's bias is
// always bf16. f8 may have a scale for each row of x and of the weight: both or none.
struct Matmul {
  struct Matrix {
    const void* data = nullptr;
    DType dtype = DType::kNone;
    int64_t stride = 0;  // elements between rows
  };
  int64_t tokens = 0, n = 0, k = 0;
  Matrix x, weight;
  Matrix residual;  // data null: none
  Matrix out;       // written
  const void* bias = nullptr;
  const float *x_scale = nullptr, *weight_scale = nullptr;
  bool relu = false;  // at the end
};

// A cublasLtMatmulAlgo_t: valid for the library's version and GPU that gave it. All zero: none.
using MatmulAlgorithm = std::array<std::byte, 64>;

// Of one device. Any thread: what a product needs is made when it is first asked for and kept, and calls are enqueued
// one at a time.
class Matmuls {
 public:
  Matmuls(std::shared_ptr<const CublasLt> lt, int compute_capability);
  Matmuls(const Matmuls&) = delete;
  ~Matmuls();

  // Workspace that makes every algorithm possible that is worth it.
  static size_t workspace_bytes(int64_t tokens, int64_t n);

  // Enqueues the product. `chosen` is used if it can do this product in the workspace, else what `candidates`
  // ranks first. Memory must stay valid until the work has run. kUnsupported: cuBLASLt has no such product.
  Result<> run(const Matmul& product, const MatmulAlgorithm& chosen, MutableBytes workspace, CUstream_st* stream);

  // Algorithms for this product and workspace, the best first: by cuBLASLt's heuristic, but for products of many tokens
  // by what measured better. None if there is no such product.
  Result<std::vector<MatmulAlgorithm>> candidates(const Matmul& product, MutableBytes workspace, int count);

  size_t version() const;

 private:
  struct Key;
  struct Ready;

  Result<std::unique_ptr<Ready>> describe(const Key& key) const;
  Result<std::unique_ptr<Ready>> prepare(const Key& key, const Matmul& product) const;
  // Of the product at hand: Ready is kept for others like it.
  Result<> set_pointers(const Ready& ready, const Matmul& product) const;
  Result<std::vector<MatmulAlgorithm>> ask(const Key& key, const Ready& ready, int count) const;
  // `chosen` if it can do the product within the workspace.
  bool can_use(const Key& key, const Ready& ready, const MatmulAlgorithm& chosen) const;

  std::shared_ptr<const CublasLt> lt_;
  const bool prefers_turns_;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Ready>> ready_;
};

}  // namespace bolide
