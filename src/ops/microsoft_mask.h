// The masks of com.microsoft's attention ops.
#pragma once

#include "ir/op_def.h"
#include "ops/dense.h"

namespace bolide {

// A mask of keys (lengths [B], or 0 and 1 [B, L] or [B, S, L]) and a bias of the scores [B or 1, H or 1, S or 1, L].
struct KeyMask {
  std::vector<int64_t> lengths;
  std::vector<bool> shown;  // [B, L] or [B, S, L]; empty: all
  int64_t rows = 1;         // S of a mask of 3 dims
  int64_t keys = 0;
  Tensor bias;  // f64
  int64_t bias_batch = 0, bias_head = 0, bias_row = 0;
  double hidden = -10000;  // what a masked key's score gets

  // Inputs `mask` and `bias` of the node for scores [B, H, S, L].
  static Result<KeyMask> read(const RunContext& c, size_t mask, size_t bias, const Shape& scores);
  static Result<> read_bias(const RunContext& c, size_t bias, const Shape& scores, KeyMask& to);
  template <class T>
  void write(int64_t b, int64_t h, int64_t i, int64_t L, T* row) const;
};

}  // namespace bolide
