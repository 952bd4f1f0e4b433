// channels_last: what networks of NHWC images need beside products: depthwise convolutions, pools, and the transposes
// from and to NCHW.
//
// Bound: memory, or one load a multiply-add where the image is in L2. Nothing outside the arrays named is read or
// written; y overlaps nothing else.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/workers.h"
#include "kernels/igemm/igemm.h"

namespace bolide::channels_last {

using igemm::Activation;
using igemm::Windows;

constexpr bool supports(Isa isa) { return isa >= Isa::kAvx2; }

// y = f(sum of x under the weights + bias + residual), every channel by itself.
struct Depthwise {
  Windows windows;  // channels: all of them, pixel_stride the same
  int64_t images = 0;
  const float* x = nullptr;
  const float* weights = nullptr;   // [kernel height, kernel width, channels]
  const float* bias = nullptr;      // [channels]; null: none
  const float* residual = nullptr;  // as y; null: none
  float* y = nullptr;
  Activation activation = Activation::kNone;
  float alpha = 0, beta = 0;
};
void depthwise(Workers& workers, Isa isa, const Depthwise& d);

// What lies in the padding is no part of a window; a window of nothing is -infinity, of a mean 0.
void max_pool(Workers& workers, Isa isa, const Windows& windows, int64_t images, const float* x, float* y);
// counts_padding: a window's sum is divided by what it has with the padding; `end` is the padding behind each axis.
void average_pool(Workers& workers, Isa isa, const Windows& windows, int64_t images, const float* x, float* y,
                  bool counts_padding, const int64_t (&end)[2]);
// y [images, channels] = the means of x [images, pixels, channels]; sums of up to 1024 pixels are in f32.
void mean_of_pixels(Workers& workers, Isa isa, int64_t images, int64_t pixels, int64_t channels, const float* x,
                    float* y);

// y [batch, columns, rows] = x [batch, rows, columns], of 32-bit elements.
void transpose(Workers& workers, Isa isa, int64_t batch, int64_t rows, int64_t columns, const float* x, float* y);

}  // namespace bolide::channels_last
