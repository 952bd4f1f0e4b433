// PackedBlocks: a constant matrix of 4- or 8-bit codes with a scale, and perhaps a zero point, for each block along K
// (ONNX's MatMulNBits) as strips, and products of rows with it.
//
// Thread rules: immutable once made; any number of threads may run it, each with workers and workspace of its own.
#pragma once

#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "base/workers.h"
#include "device/device.h"
#include "kernels/linear/strips.h"

namespace bolide {

struct ProductMethod;

// The strips' schemes: blocks of 32, 64, 128 and 256, and, of 4 bits, of 16.
std::span<const StripScheme> block_strip_schemes();

class PackedBlocks {
 public:
  // weight(i, j) = scales[i][j / block] * (code(i, j) - zero of that block), i < n, j < k.
  struct Source {
    int64_t n = 0, k = 0;
    int bits = 4;       // 4 or 8
    int64_t block = 0;  // a power of two, 16 or more; with 8 bits 32 or more
    // [n][blocks][block * bits / 8], low nibble first; what lies behind k is not read as weights.
    const uint8_t* codes = nullptr;
    const float* scales = nullptr;   // [n][blocks]
    const uint8_t* zeros = nullptr;  // [n][(blocks * bits + 7) / 8], low nibble first; null: 8 or 128
    int64_t blocks() const { return (k + block - 1) / block; }
  };
  // int8: rows are rounded to int8 in groups of 32, as Compute::kInt8 does it; else all is f32.
  // Null: the processor's level has no kernel, or the matrix is none of these.
  static Result<std::unique_ptr<PackedBlocks>> make(const Source& source, bool int8, const DeviceInfo& device,
                                                    Workers& workers);

  // out [rows, n] = x [rows, k] w + bias
  struct Rows {
    int64_t rows = 0;
    const float* x = nullptr;
    int64_t x_stride = 0;
    float* out = nullptr;
    int64_t out_stride = 0;
    const float* bias = nullptr;  // [n]; null: none
  };
  size_t workspace(int64_t rows, int threads) const;
  // `workspace`: 64-byte aligned.
  void run(const Rows& rows, MutableBytes workspace, Workers& workers) const;

  std::string_view kernel() const;
  size_t bytes() const { return memory_.size(); }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }

 private:
  PackedBlocks() = default;
  ValueType type() const;
  void run_few(const Rows& rows, MutableBytes workspace, Workers& workers) const;

  int64_t k_ = 0, n_ = 0, depth_ = 0;  // depth: k padded to full blocks
  const StripScheme* scheme_ = nullptr;
  const ProductMethod* method_ = nullptr;
  void (*few_)(const ExactStripArgs&) = nullptr;  // f32, a few rows
  Buffer memory_;
};

}  // namespace bolide
