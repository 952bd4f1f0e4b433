// Arithmetic of shapes that many ops share: axes, broadcasting, strides.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tensor/shape.h"

namespace bolide {

// Shape from dims of a file or a tensor: kInvalid for negative ones, kUnsupported for more than kRankMax of them.
Result<Shape> shape_of(std::span<const int64_t> dims);

// An axis of a tensor of this rank: negative ones count from the end. kInvalid: outside [-rank, rank).
Result<int> axis_of(int64_t axis, int rank);
// All axes, each once, as flags.
Result<std::array<bool, kRankMax>> axes_of(std::span<const int64_t> axes, int rank);

// The shape that both broadcast to (numpy's rule). kInvalid: they do not.
Result<Shape> broadcast(const Shape& a, const Shape& b);

using Strides = std::array<int64_t, kRankMax>;
// Elements between neighbours along each axis of a contiguous tensor.
Strides strides_of(const Shape& shape);
// The same of a tensor of `shape` read as if it were `wide`, to which it broadcasts: 0 along repeated axes.
Strides broadcast_strides(const Shape& shape, const Shape& wide);

// Calls f(index in the output order 0, 1, ..., offset by strides a, offset by strides b) for all elements of a shape.
template <class F>
void for_each_offset(const Shape& shape, const Strides& a, const Strides& b, F&& f) {
  const int64_t total = shape.elements();
  if (total == 0) return;
  std::array<int64_t, kRankMax> at{};
  int64_t from_a = 0, from_b = 0;
  for (int64_t i = 0; i < total; ++i) {
    f(i, from_a, from_b);
    for (int axis = shape.rank - 1; axis >= 0; --axis) {
      const auto d = static_cast<size_t>(axis);
      from_a += a[d], from_b += b[d];
      if (++at[d] < shape[axis]) break;
      from_a -= a[d] * shape[axis], from_b -= b[d] * shape[axis];
      at[d] = 0;
    }
  }
}

}  // namespace bolide
