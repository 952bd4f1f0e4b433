// What igemm_avx2.cc and igemm_avx512.cc have: tiles of sums, and how A and B are brought together for them.
#pragma once

#include <cstdint>

#include "kernels/igemm/igemm.h"

namespace bolide::igemm {

// rows x (strips * 16) of C, or as many columns of it as there are.
struct Tile {
  const float* a = nullptr;  // row i at i * a_stride; along K `runs` of `run` floats, a_run_stride apart
  int64_t a_stride = 0, run = 0, runs = 1, a_run_stride = 0;
  const Part* parts = nullptr;  // instead of all that: `runs` of them, from row `row` on
  int64_t row = 0;
  const float* b = nullptr;  // [run * runs][16], the next strip at b_stride
  int64_t b_stride = 0;
  float* c = nullptr;
  int64_t c_stride = 0, columns = 0;
  bool adds = false;  // to what is in C; else to the bias
  const float* bias = nullptr;
  bool ends = false;  // the last part of K: residual and limits
  const float* residual = nullptr;
  int64_t residual_stride = 0;
  float low = 0, high = 0;
  // What is asked for in advance; never read. next_b: bytes, as many further for each step of K.
  const float *next_a = nullptr, *next_b = nullptr;
  int64_t next_b_step = 0;
};
using TileFunction = void (*)(const Tile&);

struct Rows {
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride, rows, columns;
};

inline constexpr int kTileRowsMax = 14, kTileStripsMax = 2;

struct Functions {
  int tile_rows, tile_strips;
  TileFunction tiles[kTileStripsMax][kTileRowsMax];  // [strips - 1][rows - 1]
  // Rows [m, m + rows) of A, columns [k, k + count), to `to`, rows `stride` apart.
  void (*pack_rows)(const float* a, int64_t a_stride, int64_t rows, int64_t count, float* to, int64_t stride);
  void (*pack_windows)(const Windows& windows, const float* a, int64_t m, int64_t rows, int64_t k, int64_t count,
                       float* to, int64_t stride);
  // Lines [y, y + count) of an image, from the first window's first tap on, `size` floats each, with the padding.
  void (*pack_lines)(const Windows& windows, const float* image, int64_t y, int64_t count, int64_t size, float* to);
  // K rows of a strip whose columns are contiguous (row_stride apart), or whose rows are (column_stride apart).
  void (*pack_strip)(const float* b, int64_t row_stride, int64_t column_stride, int64_t K, int64_t columns, float scale,
                     float* to);
  void (*activate)(Activation activation, float alpha, float beta, const Rows& rows);
};
extern const Functions kAvx2, kAvx512;

}  // namespace bolide::igemm
