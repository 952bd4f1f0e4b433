#include "ops/shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace bolide {

Result<Shape> shape_of(std::span<const int64_t> dims) {
  if (dims.size() > kRankMax)
    return error(Code::kUnsupported,
                 fmt::format("a tensor of {} dims: at most {} are supported", dims.size(), kRankMax));
  for (const int64_t dim : dims)
    if (dim < 0) return error(Code::kInvalid, fmt::format("a dim of {}", dim));
  return Shape(dims);
}

Result<int> axis_of(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    return error(Code::kInvalid, fmt::format("axis {} of a tensor of {} dims", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<std::array<bool, kRankMax>> axes_of(std::span<const int64_t> axes, int rank) {
  std::array<bool, kRankMax> flags{};
  for (const int64_t given : axes) {
    BOLIDE_TRY(const int axis, axis_of(given, rank));
    if (flags[static_cast<size_t>(axis)]) return error(Code::kInvalid, fmt::format("axis {} twice", given));
    flags[static_cast<size_t>(axis)] = true;
  }
  return flags;
}

Result<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape wide;
  wide.rank = std::max(a.rank, b.rank);
  for (int i = 1; i <= wide.rank; ++i) {
    const int64_t x = i <= a.rank ? a[-i] : 1, y = i <= b.rank ? b[-i] : 1;
    if (x != y && x != 1 && y != 1)
      return error(Code::kInvalid, fmt::format("shapes {} and {} do not broadcast", to_string(a), to_string(b)));
    wide[-i] = x == 1 ? y : x;
  }
  return wide;
}

Strides strides_of(const Shape& shape) {
  Strides strides{};
  int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; --axis) strides[static_cast<size_t>(axis)] = step, step *= shape[axis];
  return strides;
}

Strides broadcast_strides(const Shape& shape, const Shape& wide) {
  const Strides own = strides_of(shape);
  Strides strides{};
  for (int i = 1; i <= shape.rank; ++i)
    if (shape[-i] != 1) strides[static_cast<size_t>(wide.rank - i)] = own[static_cast<size_t>(shape.rank - i)];
  return strides;
}

}  // namespace bolide
