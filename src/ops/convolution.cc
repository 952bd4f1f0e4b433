// Conv: each group of a batch is a product of the weights [M / g, C / g * taps] and columns [C / g * taps, outputs]
// that are made a block at a time, never as a whole. Groups with few channels (depthwise) are summed row by row.
#include "ops/convolution.h"

#include <algorithm>

#include "ops/channels_last.h"
#include "ops/dense.h"
#include "ops/ops.h"

namespace bolide {
namespace {

// Taps as positions along each axis, the last fastest.
std::vector<SpatialDims> taps_of(const Window& window) {
  std::vector<SpatialDims> taps;
  SpatialDims at{};
  const auto rank = static_cast<size_t>(window.rank);
  do taps.push_back(at);
  while (step({window.kernel.data(), rank}, {at.data(), rank}));
  return taps;
}

// Where the row of inputs of a tap begins for the output row at `at` (its last axis is not looked at), or -1 if it lies
// in the padding.
int64_t row_of(const Window& window, const SpatialDims& at, const SpatialDims& tap) {
  int64_t row = 0;
  for (size_t i = 0; i + 1 < static_cast<size_t>(window.rank); ++i) {
    const int64_t y = at[i] * window.stride[i] + tap[i] * window.dilation[i] - window.begin[i];
    if (y < 0 || y >= window.input[i]) return -1;
    row = row * window.input[i] + y;
  }
  return row * window.input[static_cast<size_t>(window.rank - 1)];
}

template <class T>
struct Columns {
  const Window& window;
  const std::vector<SpatialDims>& taps;
  const T* x;  // the group's first channel

  // Columns [j, j + columns) of row k: what tap k % taps of channel k / taps reads.
  void row(int64_t k, int64_t j, int64_t columns, T* to) const {
    const auto last = static_cast<size_t>(window.rank - 1);
    const auto count = static_cast<int64_t>(taps.size());
    const SpatialDims& tap = taps[static_cast<size_t>(k % count)];
    const T* channel = x + k / count * window.inputs();
    const auto [first, end] = window.reach(window.rank - 1, tap[last]);
    const int64_t stride = window.stride[last], shift = tap[last] * window.dilation[last] - window.begin[last];
    SpatialDims at{};
    int64_t rest = j;
    for (size_t i = last + 1; i-- > 0;) at[i] = rest % window.output[i], rest /= window.output[i];
    while (columns > 0) {
      const int64_t run = std::min(columns, window.output[last] - at[last]);
      const int64_t from_row = row_of(window, at, tap);
      const int64_t begin = at[last], stop = begin + run;
      const int64_t lo = from_row < 0 ? stop : std::clamp(first, begin, stop);
      const int64_t hi = from_row < 0 ? stop : std::clamp(end, lo, stop);
      T* out = to - begin;
      for (int64_t o = begin; o < lo; ++o) out[o] = T{};
      if (stride == 1 && lo < hi)
        std::copy_n(channel + from_row + lo + shift, hi - lo, out + lo);
      else
        for (int64_t o = lo; o < hi; ++o) out[o] = channel[from_row + o * stride + shift];
      for (int64_t o = hi; o < stop; ++o) out[o] = T{};
      to += run, columns -= run;
      at[last] = window.output[last] - 1;
      step({window.output.data(), last + 1}, {at.data(), last + 1});
    }
  }
};

// y [outputs] += the channels of x under the weights w [channels, taps].
template <class T>
void add_rows(const Window& window, const std::vector<SpatialDims>& taps, int64_t channels, const T* x, const T* w,
              T* y) {
  const auto last = static_cast<size_t>(window.rank - 1);
  const int64_t stride = window.stride[last], width = window.output[last];
  std::vector<std::array<int64_t, 2>> reach;
  for (const SpatialDims& tap : taps) reach.push_back(window.reach(window.rank - 1, tap[last]));
  SpatialDims at{};
  do {
    for (int64_t channel = 0; channel < channels; ++channel)
      for (size_t t = 0; t < taps.size(); ++t) {
        const int64_t row = row_of(window, at, taps[t]);
        const auto [lo, hi] = reach[t];
        if (row < 0 || lo >= hi) continue;
        const T weight = w[channel * static_cast<int64_t>(taps.size()) + static_cast<int64_t>(t)];
        const T* in = x + channel * window.inputs() + row + taps[t][last] * window.dilation[last] - window.begin[last];
        if (stride == 1)
          for (int64_t o = lo; o < hi; ++o) y[o] += weight * in[o];
        else
          for (int64_t o = lo; o < hi; ++o) y[o] += weight * in[o * stride];
      }
    y += width;
  } while (step({window.output.data(), last}, {at.data(), last}));
}

Result<> run_conv(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* b, c.tensor_if(2));
  BOLIDE_TRY(const Convolution convolution, read_convolution(c, *x, *w, b));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_x, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor wide_w, widened<T>(c, *w));
    BOLIDE_TRY(const Tensor wide_b, widened_if<T>(c, 2));
    BOLIDE_TRY(Tensor y, convolve<T>(c, convolution, wide_x, wide_w, wide_b));
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "Conv", .run = run_conv, .prepare = prepare_conv},
    {"", "ConvTranspose", 1, run_conv_transpose},
    {"", "DeformConv", 19, run_deform_conv},
    {"", "Col2Im", 18, run_col2im},
};

}  // namespace

Result<Convolution> read_convolution(const RunContext& c, const Tensor& x, const Tensor& w, const Tensor* b) {
  Convolution to;
  BOLIDE_TRY(to.groups, c.attributes().integer("group", 1));
  if (x.rank() < 3 || w.rank() != x.rank())
    return error(Code::kInvalid, fmt::format("X is {}, W {}: expected [N, C, D1, ...] and [M, C / group, K1, ...]",
                                             to_string(x.shape()), to_string(w.shape())));
  to.N = x.dim(0), to.C = x.dim(1), to.M = w.dim(0);
  if (to.groups < 1 || to.C % to.groups != 0 || to.M % to.groups != 0 || w.dim(1) != to.C / to.groups)
    return error(Code::kInvalid, fmt::format("X is {}, W {}: no channels of group {}", to_string(x.shape()),
                                             to_string(w.shape()), to.groups));
  if (b != nullptr) BOLIDE_TRY(expect_shape(*b, {to.M}, "B"));
  BOLIDE_TRY(to.window, forward_window(c, x, w.shape().span().subspan(2), false));
  BOLIDE_TRY(to.shape, output_shape(to.window, to.N, to.M));
  return to;
}

template <class T>
Result<Tensor> convolve(RunContext& c, const Convolution& convolution, const Tensor& x, const Tensor& w,
                        const Tensor& b) {
  const auto& [window, N, C, M, groups, shape] = convolution;
  BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
  if (y.elements() == 0) return y;
  const int64_t plane = window.outputs(), channels = C / groups, rows = M / groups, depth = channels * window.taps();
  const T* const in = x.as<T>().data();
  const T* const weights = w.as<T>().data();
  T* const out = y.mutate<T>().data();
  for (int64_t i = 0; i < N * M; ++i)
    std::fill_n(out + i * plane, plane, b ? b.as<T>()[static_cast<size_t>(i % M)] : T{});
  if (depth == 0) return y;
  const std::vector<SpatialDims> taps = taps_of(window);
  if (channels * rows < 16) {
    parallel(c.workers(), N * M, std::max<int64_t>(1, 16384 / (plane * depth)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i % M / rows;
        add_rows(window, taps, channels, in + (i / M * C + group * channels) * window.inputs(), weights + i % M * depth,
                 out + i * plane);
      }
    });
    return y;
  }
  const bool pointwise = window.is_pointwise();
  for (int64_t i = 0; i < N * groups; ++i) {
    const Columns<T> columns{window, taps, in + i * channels * window.inputs()};
    const auto pack = [&](int64_t k, int64_t count, int64_t j, int64_t width, T* to, int64_t stride) {
      for (int64_t r = 0; r < count; ++r)
        if (pointwise)
          std::copy_n(columns.x + (k + r) * plane + j, width, to + r * stride);
        else
          columns.row(k + r, j, width, to + r * stride);
    };
    multiply_packed<T>(c.workers(), rows, plane, depth, {weights + i % groups * rows * depth, depth, 1}, pack,
                       out + i * rows * plane, plane);
  }
  return y;
}
template Result<Tensor> convolve<float>(RunContext&, const Convolution&, const Tensor&, const Tensor&, const Tensor&);
template Result<Tensor> convolve<double>(RunContext&, const Convolution&, const Tensor&, const Tensor&, const Tensor&);

std::span<const OpDef> convolution_ops() { return kOps; }

}  // namespace bolide
