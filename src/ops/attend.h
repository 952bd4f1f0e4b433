// Scaled dot-product attention and rotary embedding over strided heads: what Attention, its com.microsoft kin and
// grouped-query attention share.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "ir/op_def.h"
#include "ops/dense.h"

namespace bolide {

// [B, heads, rows, D] of any order in memory; the elements of a row are neighbours.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides

  T* at(int64_t b, int64_t h, int64_t i) const { return data + b * batch + h * head + i * row; }
  static Heads head_major(T* data, int64_t heads, int64_t rows, int64_t D) {  // [B, heads, rows, D]
    return {data, heads * rows * D, rows * D, D};
  }
  static Heads row_major(T* data, int64_t heads, int64_t rows, int64_t D) {  // [B, rows, heads * D]
    return {data, heads * rows * D, D, heads * D};
  }
};

template <class T>
struct Attend {
  int64_t B = 0, H = 0, G = 0;  // batch, heads of queries, of keys and values; H is a multiple of G
  int64_t S = 0, L = 0;         // queries, keys
  int64_t D = 0, Dv = 0;        // sizes of a head
  Heads<const T> q, k, v;
  Heads<T> out;
  double scale = 1, softcap = 0;  // 0: no cap
  bool halves = false;            // what the standard computes in f16 is rounded to it at every step
  // Optional [B, H, S, L]: 0 raw scores, 1 after the cap, 2 after the bias, 3 probabilities.
  T* scores = nullptr;
  int64_t scores_mode = 0;
  const T* sinks = nullptr;  // [H] scores of a key without a value; or
  bool smooth = false;       // one such of score 0 in all heads
};
// `bias` writes what is added to the scores of query i: row [L]. A row of -inf alone attends to nothing: zeros.
template <class T>
void attend(Workers& workers, const Attend<T>& a, FunctionRef<void(int64_t b, int64_t h, int64_t i, T* row)> bias);

// Rotates the first `dim` elements of every row by the angles whose cosines and sines are rows [dim / 2] of the caches;
// the rest is copied. `angle` is the row for query s of batch b, already checked.
template <class T>
struct Rotation {
  int64_t B = 0, H = 0, S = 0, D = 0, dim = 0;
  bool interleaved = false;  // pairs are neighbours; else a half apart
  const T* cosines = nullptr;
  const T* sines = nullptr;
};
template <class T>
void rotate(const Rotation<T>& r, const Heads<const T>& x, const Heads<T>& y,
            FunctionRef<int64_t(int64_t b, int64_t s)> angle);

// past [B, G, P, D] (may be empty) and what is new, one after the other: [B, G, P + L, D].
template <class T>
Result<Tensor> append(const RunContext& c, const Tensor& past, const Heads<const T>& now, int64_t B, int64_t G,
                      int64_t L, int64_t D);

// -infinity where T has one.
template <class T>
T masked();

}  // namespace bolide
