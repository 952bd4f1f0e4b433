#include "ops/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/dense.h"

namespace bolide {
namespace {

constexpr int64_t kExtentMax = int64_t{1} << 30;  // products of two and sums of some fit in 64 bits

Result<> fill(const RunContext& c, std::string_view name, int rank, int64_t least, int64_t* to, size_t count) {
  BOLIDE_TRY(const auto values, c.attributes().integers(name));
  if (values.empty()) return {};
  if (values.size() != count)
    return error(Code::kInvalid, fmt::format("{} has {} values for {} spatial axes", name, values.size(), rank));
  for (const int64_t value : values) {
    if (value < least || value > kExtentMax)
      return error(Code::kInvalid, fmt::format("{} has {}, expected {} to {}", name, value, least, kExtentMax));
    *to++ = value;
  }
  return {};
}

int64_t divide_up(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

}  // namespace

int64_t Window::taps() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= kernel[static_cast<size_t>(i)];
  return n;
}
int64_t Window::inputs() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= input[static_cast<size_t>(i)];
  return n;
}
int64_t Window::outputs() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= output[static_cast<size_t>(i)];
  return n;
}
bool Window::is_pointwise() const {
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i)
    if (kernel[i] != 1 || stride[i] != 1 || begin[i] != 0 || end[i] != 0) return false;
  return true;
}

std::array<int64_t, 2> Window::reach(int axis, int64_t tap) const {
  const auto d = static_cast<size_t>(axis);
  const int64_t shift = tap * dilation[d] - begin[d];
  const int64_t first = std::clamp<int64_t>(divide_up(-shift, stride[d]), 0, output[d]);
  const int64_t last = std::clamp<int64_t>(divide_up(input[d] - shift, stride[d]), first, output[d]);
  return {first, last};
}

std::array<int64_t, 2> Window::inside(int axis, int64_t at) const {
  const auto d = static_cast<size_t>(axis);
  const int64_t start = at * stride[d] - begin[d];
  const int64_t first = std::clamp<int64_t>(divide_up(-start, dilation[d]), 0, kernel[d]);
  const int64_t last = std::clamp<int64_t>(divide_up(input[d] - start, dilation[d]), first, kernel[d]);
  return {first, last};
}

Result<Window> read_window(const RunContext& c, const Tensor& x, std::span<const int64_t> kernel) {
  if (x.rank() < 3)
    return error(Code::kInvalid, fmt::format("X is {}, expected [N, C, D1, ...]", to_string(x.shape())));
  Window window;
  window.rank = x.rank() - 2;
  const auto rank = static_cast<size_t>(window.rank);
  for (size_t i = 0; i < rank; ++i) window.input[i] = x.dim(static_cast<int>(i) + 2);
  for (const int64_t dim : window.input)
    if (dim > kExtentMax) return error(Code::kInvalid, fmt::format("X is {}: too large", to_string(x.shape())));
  BOLIDE_TRY(const auto given, c.attributes().integers("kernel_shape"));
  if (kernel.empty() && given.empty()) return error(Code::kInvalid, "has no kernel_shape");
  window.stride.fill(1), window.dilation.fill(1);
  BOLIDE_TRY(fill(c, "kernel_shape", window.rank, 1, window.kernel.data(), rank));
  if (!kernel.empty()) {
    if (kernel.size() != rank)
      return error(Code::kInvalid,
                   fmt::format("X has {} spatial axes, the weights have {}", window.rank, kernel.size()));
    for (size_t i = 0; i < rank; ++i) {
      if (!given.empty() && given[i] != kernel[i])
        return error(Code::kInvalid,
                     fmt::format("kernel_shape has {} for axis {}, the weights have {}", given[i], i, kernel[i]));
      if (kernel[i] < 1 || kernel[i] > kExtentMax)
        return error(Code::kInvalid, fmt::format("a kernel of {} elements along axis {}", kernel[i], i));
      window.kernel[i] = kernel[i];
    }
  }
  BOLIDE_TRY(fill(c, "strides", window.rank, 1, window.stride.data(), rank));
  BOLIDE_TRY(fill(c, "dilations", window.rank, 1, window.dilation.data(), rank));
  std::array<int64_t, 2 * kSpatialMax> pads{};
  BOLIDE_TRY(fill(c, "pads", window.rank, 0, pads.data(), 2 * rank));
  for (size_t i = 0; i < rank; ++i) window.begin[i] = pads[i], window.end[i] = pads[rank + i];
  BOLIDE_TRY(product_of({window.kernel.data(), rank}));
  return window;
}

Result<Window> forward_window(const RunContext& c, const Tensor& x, std::span<const int64_t> kernel, bool ceil) {
  BOLIDE_TRY(Window window, read_window(c, x, kernel));
  BOLIDE_TRY(const std::string automatic, c.attributes().text("auto_pad", "NOTSET"));
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (!same && automatic != "NOTSET" && automatic != "VALID")
    return error(Code::kInvalid, fmt::format("auto_pad is '{:.40}'", automatic));
  for (size_t i = 0; i < static_cast<size_t>(window.rank); ++i) {
    const int64_t extent = (window.kernel[i] - 1) * window.dilation[i] + 1;
    if (automatic == "VALID") window.begin[i] = window.end[i] = 0;
    if (same) {
      window.output[i] = divide_up(window.input[i], window.stride[i]);
      const int64_t total = std::max<int64_t>(0, (window.output[i] - 1) * window.stride[i] + extent - window.input[i]);
      window.begin[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      window.end[i] = total - window.begin[i];
      continue;
    }
    const int64_t room = window.input[i] + window.begin[i] + window.end[i] - extent;
    if (room < 0)
      return error(Code::kInvalid, fmt::format("a kernel that reaches over {} elements does not fit {} of axis {} and "
                                               "{} of padding",
                                               extent, window.input[i], i + 2, window.begin[i] + window.end[i]));
    window.output[i] = (ceil ? divide_up(room, window.stride[i]) : room / window.stride[i]) + 1;
    // A last window that would begin in the padding at the end is none.
    if (ceil && (window.output[i] - 1) * window.stride[i] >= window.input[i] + window.begin[i]) --window.output[i];
  }
  return window;
}

Result<Shape> output_shape(const Window& window, int64_t outer0, int64_t outer1) {
  Shape shape{outer0, outer1};
  for (size_t i = 0; i < static_cast<size_t>(window.rank); ++i)
    shape.dims[static_cast<size_t>(shape.rank++)] = window.output[i];
  BOLIDE_TRY(product_of(shape.span()));
  return shape;
}

}  // namespace bolide
