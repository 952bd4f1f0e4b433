// What channels_last_avx2.cc and channels_last_avx512.cc have.
#pragma once

#include <cstdint>

#include "kernels/channels_last/channels_last.h"

namespace bolide::channels_last {

// One row of outputs of one image.
struct PoolRow {
  const Windows& windows;
  const float* image;
  int64_t row;
  float* y;
  const float* weights = nullptr;   // depthwise
  const float* bias = nullptr;      // depthwise
  const float* residual = nullptr;  // depthwise
  float low = 0, high = 0;          // depthwise
  bool counts_padding = false;      // mean
  int64_t end[2] = {0, 0};          // mean
};

struct Functions {
  void (*depthwise)(const PoolRow& row);
  void (*max)(const PoolRow& row);
  void (*mean)(const PoolRow& row);
  void (*mean_of_pixels)(int64_t pixels, int64_t channels, int64_t pixel_stride, const float* x, float* y);
  // y[c * rows + r] = x[r * columns + c] for rows [r0, r1) and columns [c0, c1).
  void (*transpose)(const float* x, float* y, int64_t rows, int64_t columns, int64_t r0, int64_t r1, int64_t c0,
                    int64_t c1);
};
extern const Functions kAvx2, kAvx512;

}  // namespace bolide::channels_last
