// The convolution that Conv and its fused kin compute.
#pragma once

#include "ir/op_def.h"
#include "ops/window.h"

namespace bolide {

struct Convolution {
  Window window;
  int64_t N = 0, C = 0, M = 0, groups = 1;  // batch, channels in, channels out
  Shape shape;                              // of Y
};
// Checks X [N, C, ...], W [M, C / groups, ...] and B [M] or null against the node's attributes.
Result<Convolution> read_convolution(const RunContext& c, const Tensor& x, const Tensor& w, const Tensor* b);
// Y of the convolution. x, w and b (may be empty) are of T: float or double.
template <class T>
Result<Tensor> convolve(RunContext& c, const Convolution& convolution, const Tensor& x, const Tensor& w,
                        const Tensor& b);

// What ConvTranspose computes: `window` is of the forward convolution whose inputs are its outputs. Checks the node's
// attributes and the inputs' shapes.
Result<Convolution> read_transposed(const RunContext& c);

Result<> run_conv_transpose(RunContext& c);
Result<> run_deform_conv(RunContext& c);
Result<> run_col2im(RunContext& c);

}  // namespace bolide
