// The geometry that convolutions and pools share: a window that slides over the spatial axes [N, C, D1, ..., Dr].
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ir/op_def.h"

namespace bolide {

inline constexpr int kSpatialMax = kRankMax - 2;
using SpatialDims = std::array<int64_t, kSpatialMax>;

struct Window {
  int rank = 0;                                                                   // spatial axes
  SpatialDims input{}, output{}, kernel{}, stride{}, dilation{}, begin{}, end{};  // begin, end: padding

  int64_t taps() const;
  int64_t inputs() const;     // spatial elements in
  int64_t outputs() const;    // and out
  bool is_pointwise() const;  // reads each element once, where it lies
  // Output positions [first, last) of an axis whose input lies inside for a tap.
  std::array<int64_t, 2> reach(int axis, int64_t tap) const;
  // Taps [first, last) of an axis that lie inside for an output position.
  std::array<int64_t, 2> inside(int axis, int64_t at) const;
};

// Kernel, strides, dilations and pads of a node's attributes, for x [N, C, D1, ...]; without output sizes. `kernel`
// empty: kernel_shape, which is then needed.
Result<Window> read_window(const RunContext& c, const Tensor& x, std::span<const int64_t> kernel);
// The same with the padding that auto_pad asks for and the output sizes of a forward pass; `ceil` rounds them up.
Result<Window> forward_window(const RunContext& c, const Tensor& x, std::span<const int64_t> kernel, bool ceil);
// [outer0, outer1, output sizes].
Result<Shape> output_shape(const Window& window, int64_t outer0, int64_t outer1);

// Counts through positions of an axis list, the last fastest; false after the last.
inline bool step(std::span<const int64_t> sizes, std::span<int64_t> at) {
  for (size_t i = sizes.size(); i-- > 0;) {
    if (++at[i] < sizes[i]) return true;
    at[i] = 0;
  }
  return false;
}

}  // namespace bolide
