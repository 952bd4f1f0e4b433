// PackedMatrix: a constant matrix of f32 as strips, and products of rows with it: what MatMul, Gemm and the projections
// of attention in general graphs are made of.
//
// Thread rules: immutable once made; any number of threads may run it, each with workers and workspace of its own.
#pragma once

#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "device/device.h"

namespace bolide {

struct ProductMethod;

class PackedMatrix {
 public:
  // w(k, n) is data[k * k_stride + n * n_stride], k in [0, k), n in [0, n).
  struct Source {
    const float* data = nullptr;
    int64_t k = 0, n = 0;
    int64_t k_stride = 0, n_stride = 0;
  };
  // Null: the processor's level has no kernel, or the matrix is empty. bf16: weights and what they are multiplied with
  // are rounded to it where the processor multiplies it faster than f32; sums are f32.
  static Result<std::unique_ptr<PackedMatrix>> make(const Source& source, DType compute, const DeviceInfo& device,
                                                    Workers& workers);

  // out [rows, n] = finish(x [rows, k] w + bias + residual)
  struct Rows {
    int64_t rows = 0;
    const float* x = nullptr;
    int64_t x_stride = 0;
    float* out = nullptr;
    int64_t out_stride = 0;
    const float* bias = nullptr;      // [n]; null: none
    const float* residual = nullptr;  // [rows, n]; null: none; may be out
    int64_t residual_stride = 0;
    void (*finish)(float* piece, int64_t count) = nullptr;  // of pieces of rows, in place
  };
  size_t workspace(int64_t rows, int threads) const;
  // `workspace`: 64-byte aligned.
  void run(const Rows& rows, MutableBytes workspace, Workers& workers) const;

  std::string_view kernel() const;
  size_t bytes() const { return memory_.size(); }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }

 private:
  PackedMatrix() = default;

  int64_t k_ = 0, n_ = 0;
  bool bf16_ = false;
  const ProductMethod* method_ = nullptr;
  Buffer memory_;
};

}  // namespace bolide
