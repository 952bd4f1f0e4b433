// The tables of rows_avx2.cc and rows_avx512.cc; plain data, for files of one instruction set too.
#pragma once

#include <cstdint>

namespace bolide::isa {

// y = f(x); those with a parameter or two in `p`.
enum RowUnary : int {
  kRowRelu,
  kRowLeakyRelu,  // p[0] x where x < 0
  kRowSigmoid,
  kRowTanh,
  kRowGelu,
  kRowGeluTanh,
  kRowSilu,
  kRowErf,
  kRowExp,
  kRowSqrt,
  kRowReciprocal,
  kRowNegate,
  kRowAbs,
  kRowHardSigmoid,  // p[0] x + p[1] between 0 and 1
  kRowHardSwish,
  kRowClip,  // between p[0] and p[1]
  kRowSquare,
  kRowUnaries
};
enum RowBinary : int { kRowAdd, kRowSubtract, kRowMultiply, kRowDivide, kRowMax, kRowMin, kRowBinaries };

// One row of a layer normalisation: t = x + skip + skip_bias, y = (t - mean) / sqrt(variance + epsilon) scale + bias.
// Not centred: y = t / sqrt(mean of squares + epsilon) scale.
struct NormRow {
  const float* x;
  const float* skip;       // null: none
  const float* skip_bias;  // null: none
  const float* scale;
  const float* bias;  // null: none
  float* sum;         // t; may be y
  float* y;
  float* mean;     // of t, [1]; null: not wanted
  float* inverse;  // 1 / sqrt(variance + epsilon), [1]; null: not wanted
  int64_t count;
  float epsilon;
  bool centred;
};

struct RowFunctions {
  void (*unary[kRowUnaries])(const float* x, float* y, int64_t count, const float* p);
  // y = a op b; b or a one element for all of the row.
  void (*binary[kRowBinaries])(const float* a, const float* b, float* y, int64_t count);
  void (*binary_right[kRowBinaries])(const float* a, float b, float* y, int64_t count);
  void (*binary_left[kRowBinaries])(float a, const float* b, float* y, int64_t count);
  void (*softmax)(const float* x, float* y, int64_t count);
  void (*log_softmax)(const float* x, float* y, int64_t count);
  void (*norm)(const NormRow& row);
  float (*sum)(const float* x, int64_t count);
  float (*max)(const float* x, int64_t count);
  // y = x scale + shift
  void (*affine)(const float* x, float scale, float shift, float* y, int64_t count);
  // Rotary embedding of pairs half apart: y[i] = cos[i] x[i] - sin[i] x[i + half], y[i + half] = sin[i] x[i] + cos[i]
  // x[i + half], i < half. y may be x.
  void (*rotate)(const float* x, const float* cosines, const float* sines, float* y, int64_t half);
  // to[c][r] = from[r][c] of 32-bit elements.
  void (*transpose)(const uint32_t* from, int64_t from_stride, int64_t rows, int64_t columns, uint32_t* to,
                    int64_t to_stride);
  // In place, for the ends of products.
  void (*finish[kRowUnaries])(float* piece, int64_t count);  // null: needs parameters
  // Softmax of `columns` columns of n elements each, `stride` apart in x and y.
  void (*softmax_columns)(const float* x, float* y, int64_t n, int64_t stride, int64_t columns);
  void (*log_softmax_columns)(const float* x, float* y, int64_t n, int64_t stride, int64_t columns);
};
extern const RowFunctions kRowsAvx2, kRowsAvx512;

}  // namespace bolide::isa
