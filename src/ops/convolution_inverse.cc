// ConvTranspose, Col2Im: columns are added to where a forward convolution would have read them. DeformConv: a
// convolution that reads where its offsets say.
#include <algorithm>
#include <cmath>

#include "ops/convolution.h"
#include "ops/dense.h"

namespace bolide {
namespace {

// image [input sizes] += columns [taps, outputs] of the forward window.
template <class T>
void add_columns(const Window& window, const T* columns, T* image) {
  const auto rank = static_cast<size_t>(window.rank), last = rank - 1;
  SpatialDims tap{};
  do {
    const auto [lo, hi] = window.reach(window.rank - 1, tap[last]);
    SpatialDims at{};
    do {
      int64_t row = 0;
      for (size_t i = 0; i < last && row >= 0; ++i) {
        const int64_t y = at[i] * window.stride[i] + tap[i] * window.dilation[i] - window.begin[i];
        row = y < 0 || y >= window.input[i] ? -1 : row * window.input[i] + y;
      }
      if (row >= 0) {
        T* to = image + row * window.input[last] + tap[last] * window.dilation[last] - window.begin[last];
        for (int64_t o = lo; o < hi; ++o) to[o * window.stride[last]] += columns[o];
      }
      columns += window.output[last];
    } while (step({window.output.data(), last}, {at.data(), last}));
  } while (step({window.kernel.data(), rank}, {tap.data(), rank}));
}

// The forward window whose inputs are what a ConvTranspose of x makes.
Result<Window> inverse_window(const RunContext& c, const Tensor& x, const Tensor& w) {
  BOLIDE_TRY(Window window, read_window(c, x, w.shape().span().subspan(2)));
  BOLIDE_TRY(const std::string automatic, c.attributes().text("auto_pad", "NOTSET"));
  BOLIDE_TRY(auto wanted, c.attributes().integers("output_shape"));
  BOLIDE_TRY(auto extra, c.attributes().integers("output_padding"));
  const auto rank = static_cast<size_t>(window.rank);
  if (wanted.size() == rank + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (extra.empty()) extra.assign(rank, 0);
  if ((!wanted.empty() && wanted.size() != rank) || extra.size() != rank)
    return error(Code::kInvalid, fmt::format("output_shape has {} and output_padding {} values for {} spatial axes",
                                             wanted.size(), extra.size(), rank));
  const bool upper = automatic == "SAME_UPPER", same = upper || automatic == "SAME_LOWER";
  if (!same && automatic != "NOTSET" && automatic != "VALID")
    return error(Code::kInvalid, fmt::format("auto_pad is '{:.40}'", automatic));
  constexpr int64_t kExtentMax = int64_t{1} << 40;
  window.output = window.input;
  for (size_t i = 0; i < rank; ++i) {
    if (extra[i] < 0 || extra[i] > kExtentMax)
      return error(Code::kInvalid, fmt::format("output_padding has {}", extra[i]));
    const int64_t whole = window.stride[i] * std::max<int64_t>(0, window.output[i] - 1) + extra[i] +
                          (window.kernel[i] - 1) * window.dilation[i] + 1;
    if (automatic == "VALID") window.begin[i] = window.end[i] = 0;
    int64_t size = whole - window.begin[i] - window.end[i];
    if (!wanted.empty() || same) {
      size = wanted.empty() ? window.output[i] * window.stride[i] : wanted[i];
      const int64_t total = std::max<int64_t>(0, whole - std::max<int64_t>(size, 0));
      window.begin[i] = upper ? total / 2 : total - total / 2;
      window.end[i] = total - window.begin[i];
    }
    if (size < 0 || size > kExtentMax)
      return error(Code::kInvalid, fmt::format("spatial axis {} of the output would have {} elements", i, size));
    window.input[i] = size;
  }
  return window;
}

template <class T>
T bilinear(const T* image, int64_t H, int64_t W, T y, T x) {
  if (!(y > T(-1) && y < static_cast<T>(H) && x > T(-1) && x < static_cast<T>(W))) return T{};
  const T top = std::floor(y), left = std::floor(x), fy = y - top, fx = x - left;
  const auto y0 = static_cast<int64_t>(top), x0 = static_cast<int64_t>(left);
  const auto at = [&](int64_t r, int64_t s) { return r < 0 || r >= H || s < 0 || s >= W ? T{} : image[r * W + s]; };
  return (1 - fy) * ((1 - fx) * at(y0, x0) + fx * at(y0, x0 + 1)) +
         fy * ((1 - fx) * at(y0 + 1, x0) + fx * at(y0 + 1, x0 + 1));
}

}  // namespace

Result<Convolution> read_transposed(const RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* b, c.tensor_if(2));
  BOLIDE_TRY(const int64_t groups, c.attributes().integer("group", 1));
  if (x->rank() < 3 || w->rank() != x->rank() || w->dim(0) != x->dim(1))
    return error(Code::kInvalid, fmt::format("X is {}, W {}: expected [N, C, D1, ...] and [C, M / group, K1, ...]",
                                             to_string(x->shape()), to_string(w->shape())));
  const int64_t N = x->dim(0), C = x->dim(1);
  if (groups < 1 || C % groups != 0) return error(Code::kInvalid, fmt::format("group {} of {} channels", groups, C));
  BOLIDE_TRY(const int64_t M, product_of(std::array{w->dim(1), groups}));
  if (b != nullptr) BOLIDE_TRY(expect_shape(*b, {M}, "B"));
  BOLIDE_TRY(const Window window, inverse_window(c, *x, *w));
  Shape shape{N, M};
  for (size_t i = 0; i < static_cast<size_t>(window.rank); ++i)
    shape.dims[static_cast<size_t>(shape.rank++)] = window.input[i];
  return Convolution{window, N, C, M, groups, shape};
}

Result<> run_conv_transpose(RunContext& c) {
  BOLIDE_TRY(const Convolution convolution, read_transposed(c));
  const auto& [window, N, C, M, groups, shape] = convolution;
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const int64_t total, product_of(shape.span()));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_x, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor wide_w, widened<T>(c, *w));
    BOLIDE_TRY(const Tensor wide_b, widened_if<T>(c, 2));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    if (total == 0) return emit(c, 0, x->dtype(), std::move(y));
    const int64_t channels = C / groups, rows = M / groups, taps = window.taps();
    const int64_t plane = window.inputs(), points = window.outputs();
    T* const out = y.mutate<T>().data();
    for (int64_t i = 0; i < N * M; ++i)
      std::fill_n(out + i * plane, plane, wide_b ? wide_b.as<T>()[static_cast<size_t>(i % M)] : T{});
    if (points == 0 || channels == 0) return emit(c, 0, x->dtype(), std::move(y));
    BOLIDE_TRY(const int64_t column, product_of(std::array{taps, points}));
    // As many output channels at once as make columns of some MB.
    const int64_t block = std::clamp<int64_t>((int64_t{1} << 22) / column, 1, rows);
    BOLIDE_TRY(Tensor columns, make_wide<T>(c, {block, column}));
    for (int64_t i = 0; i < N * groups; ++i)
      for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        multiply<T>(c.workers(), count * taps, points, channels, 1, [&](int64_t) {
          return Product<T>{{wide_w.as<T>().data() + (i % groups * channels * rows + row) * taps, 1, rows * taps},
                            {wide_x.as<T>().data() + i * channels * points, points, 1},
                            columns.mutate<T>().data(),
                            points};
        });
        parallel(c.workers(), count, 1, [&](int64_t begin, int64_t end) {
          for (int64_t m = begin; m < end; ++m)
            add_columns(window, columns.as<T>().data() + m * column, out + (i * rows + row + m) * plane);
        });
      }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// X [N, C, H, W], W [M, C / group, kh, kw], offset [N, 2 G kh kw, oh, ow], B [M], mask [N, G kh kw, oh, ow]
Result<> run_deform_conv(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* offset, c.tensor(2));
  BOLIDE_TRY(const Tensor* b, c.tensor_if(3));
  BOLIDE_TRY(const Tensor* mask, c.tensor_if(4));
  BOLIDE_TRY(const int64_t parts, c.attributes().integer("offset_group", 1));
  if (x->rank() != 4) return error(Code::kUnsupported, fmt::format("X is {}, not [N, C, H, W]", to_string(x->shape())));
  BOLIDE_TRY(const Convolution convolution, read_convolution(c, *x, *w, b));
  const auto& [window, N, C, M, groups, shape] = convolution;
  if (parts < 1 || C % parts != 0)
    return error(Code::kInvalid, fmt::format("offset_group {} of {} channels", parts, C));
  const int64_t oh = window.output[0], ow = window.output[1], taps = window.taps();
  BOLIDE_TRY(const int64_t offsets, product_of(std::array{int64_t{2}, parts, taps}));
  BOLIDE_TRY(expect_shape(*offset, {N, offsets, oh, ow}, "offset"));
  if (mask != nullptr) BOLIDE_TRY(expect_shape(*mask, {N, offsets / 2, oh, ow}, "mask"));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_x, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor wide_w, widened<T>(c, *w));
    BOLIDE_TRY(const Tensor wide_offset, widened<T>(c, *offset));
    BOLIDE_TRY(const Tensor wide_b, widened_if<T>(c, 3));
    BOLIDE_TRY(const Tensor wide_mask, widened_if<T>(c, 4));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    if (y.elements() == 0) return emit(c, 0, x->dtype(), std::move(y));
    const int64_t plane = oh * ow, channels = C / groups, rows = M / groups, depth = channels * taps;
    const int64_t H = window.input[0], W = window.input[1];
    T* const out = y.mutate<T>().data();
    for (int64_t i = 0; i < N * M; ++i)
      std::fill_n(out + i * plane, plane, wide_b ? wide_b.as<T>()[static_cast<size_t>(i % M)] : T{});
    for (int64_t i = 0; i < N * groups; ++i) {
      const auto pack = [&](int64_t k0, int64_t count, int64_t j0, int64_t width, T* to, int64_t stride) {
        for (int64_t k = k0; k < k0 + count; ++k, to += stride) {
          const int64_t channel = i % groups * channels + k / taps, tap = k % taps;
          const int64_t kh = tap / window.kernel[1], kw = tap % window.kernel[1];
          const T* image = wide_x.as<T>().data() + (i / groups * C + channel) * H * W;
          const int64_t at = (i / groups * parts + channel / (C / parts)) * taps + tap;
          const T* dy = wide_offset.as<T>().data() + 2 * at * plane;
          for (int64_t j = 0; j < width; ++j) {
            const int64_t o = j0 + j, row = o / ow;
            const auto base_y = static_cast<T>(row * window.stride[0] + kh * window.dilation[0] - window.begin[0]);
            const auto base_x = static_cast<T>(o % ow * window.stride[1] + kw * window.dilation[1] - window.begin[1]);
            const T value = bilinear(image, H, W, base_y + dy[o], base_x + dy[plane + o]);
            to[j] = wide_mask ? value * wide_mask.as<T>()[static_cast<size_t>(at * plane + o)] : value;
          }
        }
      };
      multiply_packed<T>(c.workers(), rows, plane, depth, {wide_w.as<T>().data() + i % groups * rows * depth, depth, 1},
                         pack, out + i * rows * plane, plane);
    }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// [N, C taps, blocks] > [N, C, image sizes]
Result<> run_col2im(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const auto image, c.integers(1, {}, kSpatialMax));
  BOLIDE_TRY(const auto kernel, c.integers(2, {}, kSpatialMax));
  if (x->rank() != 3 || image.empty() || kernel.size() != image.size())
    return error(Code::kInvalid, fmt::format("the input is {}, image_shape has {} and block_shape {} values",
                                             to_string(x->shape()), image.size(), kernel.size()));
  Shape shape{x->dim(0), 1};
  for (const int64_t size : image) {
    if (size < 0) return error(Code::kInvalid, fmt::format("image_shape has {}", size));
    shape.dims[static_cast<size_t>(shape.rank++)] = size;
  }
  BOLIDE_TRY(product_of(shape.span()));
  // The forward window is that of a convolution over the image: geometry only, no elements.
  BOLIDE_TRY(const Window window, forward_window(c, Tensor::over(nullptr, nullptr, DType::kF32, shape), kernel, false));
  BOLIDE_TRY(const int64_t blocks, product_of({window.output.data(), image.size()}));
  const int64_t taps = window.taps();
  if (x->dim(2) != blocks || x->dim(1) % taps != 0)
    return error(Code::kInvalid, fmt::format("the input is {}, expected a multiple of {} rows and {} columns",
                                             to_string(x->shape()), taps, blocks));
  shape[1] = x->dim(1) / taps;
  BOLIDE_TRY(product_of(shape.span()));
  const DType dtype = x->dtype();
  const auto run = [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape, true));
    if (y.elements() > 0 && wide.elements() > 0)
      for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
        add_columns(window, wide.as<T>().data() + i * taps * blocks, y.mutate<T>().data() + i * window.inputs());
    return emit(c, 0, dtype, std::move(y));
  };
  return in_wide(dtype, "the input", run);
}

}  // namespace bolide
