// Products of activations with activations, by panels: kPanel columns by all of k, so that a tile of sums stays in
// registers. Plain data, for files of one instruction set too.
#pragma once

#include <cstdint>

namespace bolide::isa {

// One head's attention for a block of queries: out = softmax(cap(scale q k^T) + bias) v. Rows are contiguous.
struct AttendTask {
  const float* q;  // [rows, dim]
  int64_t q_stride;
  const float* k;  // [keys, dim]
  int64_t k_stride;
  const float* v;  // [keys, value_dim]
  int64_t v_stride;
  float* out;  // [rows, value_dim]
  int64_t out_stride;
  int64_t rows, keys, dim, value_dim;
  float scale;
  const float* bias;    // [rows, keys]; null: none
  int64_t bias_stride;  // 0: one row for all
  int64_t seen;         // row r sees keys [0, seen + r); keys or more: all of them
  int64_t window;       // and of those the last so many; 0: all
  float softcap;        // cap(x) = softcap tanh(x / softcap); 0: x
  const float* sinks;   // of row r, at r * sinks_stride: the score of a key more, which has no value; null: none
  int64_t sinks_stride;
  float* scratch;  // attend_scratch floats, 64-byte aligned
};

struct PanelFunctions {
  int panel;  // columns
  // Columns [0, count) of b, element (i, j) at b[i * row + j * column], become panel [k][panel]; the rest are zeros.
  void (*pack)(const float* b, int64_t row, int64_t column, int64_t k, int64_t count, float* panel);
  // out [rows, count] = alpha a [rows, k] panel; one chain of fused multiply-adds an element, k ascending.
  void (*multiply)(const float* a, int64_t a_stride, int64_t rows, const float* panel, int64_t k, float alpha,
                   float* out, int64_t out_stride, int64_t count);
  int64_t (*attend_scratch)(const AttendTask& task);  // floats
  void (*attend)(const AttendTask& task);
};
extern const PanelFunctions kPanelsAvx2, kPanelsAvx512;

}  // namespace bolide::isa
