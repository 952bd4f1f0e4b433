// Products and convolutions of integers: MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv. Sums are i32 that
// wrap.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/attribute.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/prepared_op.h"
#include "ops/quantise.h"
#include "ops/quantise_prepared.h"

namespace bolide {
namespace {

// Codes of u8 or i8 less their zero points, which broadcast to them, as i32.
Result<Tensor> centred(RunContext& c, const Tensor& codes, const Tensor* zero, std::string_view name) {
  if (codes.dtype() != DType::kU8 && codes.dtype() != DType::kI8)
    return error(Code::kInvalid, fmt::format("{} is of {}, expected u8 or i8", name, to_string(codes.dtype())));
  BOLIDE_TRY(const Tensor wide, cast(codes, DType::kI32, c.pool()));
  if (zero == nullptr) return wide;
  if (zero->dtype() != codes.dtype())
    return error(Code::kInvalid, fmt::format("{} is of {}, its zero point of {}", name, to_string(codes.dtype()),
                                             to_string(zero->dtype())));
  BOLIDE_TRY(const Tensor wide_zero, cast(*zero, DType::kI32, c.pool()));
  BOLIDE_TRY(Tensor out,
             (combine_as<int32_t, int32_t, int32_t>(c, wide, wide_zero, [](int32_t a, int32_t b) { return a - b; })));
  if (out.shape() != codes.shape())
    return error(Code::kInvalid,
                 fmt::format("{} is {}, its zero point {}", name, to_string(codes.shape()), to_string(zero->shape())));
  return out;
}

// What belongs to the rows of a [..., M, K] may be just [M].
Tensor by_row(const Tensor& p, const Tensor& a) {
  const bool rows = p.rank() == 1 && p.dim(0) != 1 && a.rank() >= 2 && p.dim(0) == a.dim(-2);
  return rows ? p.reshaped({p.dim(0), 1}) : p;
}

// a [..., M, K] i32, b [..., K, N] i32: numpy's matmul, i32.
Result<Tensor> product(RunContext& c, const Tensor& a, const Tensor& b) {
  if (a.rank() == 0 || b.rank() == 0) return error(Code::kInvalid, "a product of a scalar");
  const auto as_matrix = [](const Tensor& t, bool row) {
    return t.rank() > 1 ? t.shape() : row ? Shape{1, t.dim(0)} : Shape{t.dim(0), 1};
  };
  const Shape left = as_matrix(a, true), right = as_matrix(b, false);
  const int64_t rows = left[-2], inner = left[-1], cols = right[-1];
  if (right[-2] != inner)
    return error(Code::kInvalid, fmt::format("a product of {} and {}", to_string(a.shape()), to_string(b.shape())));
  const auto batch_of = [](const Shape& s) { return Shape(s.span().first(static_cast<size_t>(s.rank - 2))); };
  BOLIDE_TRY(const Shape batch, broadcast(batch_of(left), batch_of(right)));
  Shape shape = batch;
  if (shape.rank + 2 > kRankMax) return error(Code::kUnsupported, "a product of too many dims");
  if (a.rank() > 1) shape.dims[static_cast<size_t>(shape.rank++)] = rows;
  if (b.rank() > 1) shape.dims[static_cast<size_t>(shape.rank++)] = cols;
  BOLIDE_TRY(Tensor out, c.scratch(DType::kI32, shape));
  if (out.elements() == 0) return out;
  std::vector<std::array<int64_t, 2>> batches(static_cast<size_t>(batch.elements()));
  for_each_offset(batch, broadcast_strides(batch_of(left), batch), broadcast_strides(batch_of(right), batch),
                  [&](int64_t i, int64_t from_a, int64_t from_b) {
                    batches[static_cast<size_t>(i)] = {from_a * rows * inner, from_b * inner * cols};
                  });
  const int32_t* const x = a.as<int32_t>().data();
  const int32_t* const w = b.as<int32_t>().data();
  auto* const to = reinterpret_cast<uint32_t*>(out.mutate<int32_t>().data());
  c.workers().run(batch.elements() * rows, [&](int64_t chunk, int) {
    const auto [from_a, from_b] = batches[static_cast<size_t>(chunk / rows)];
    uint32_t* const y = to + chunk * cols;
    std::fill_n(y, cols, 0u);
    for (int64_t k = 0; k < inner; ++k) {
      const auto v = static_cast<uint32_t>(x[from_a + chunk % rows * inner + k]);
      const int32_t* const row = w + from_b + k * cols;
      for (int64_t n = 0; n < cols; ++n) y[n] += v * static_cast<uint32_t>(row[n]);
    }
  });
  return out;
}

// Codes of `dtype` of sums times factors that broadcast to them, plus a zero point.
Result<Tensor> requantise(RunContext& c, const Tensor& sums, const Tensor& factors, double zero, DType dtype) {
  const auto range = code_range(dtype);
  if (!range) return error(Code::kInvalid, fmt::format("{} is no type to quantise to", to_string(dtype)));
  BOLIDE_TRY(const Tensor scaled,
             (combine_as<int32_t, double, double>(c, sums, factors, [&](int32_t sum, double factor) {
               const double v = std::nearbyint(static_cast<double>(sum) * factor + zero);
               return std::isnan(v) ? zero : std::clamp(v, range->first, range->second);
             })));
  if (scaled.shape() != sums.shape())
    return error(Code::kInvalid,
                 fmt::format("scales of {} for {}", to_string(factors.shape()), to_string(sums.shape())));
  return cast(scaled, dtype, c.pool());
}

// a * b / y of scales.
Result<Tensor> factor_of(RunContext& c, const Tensor& a, const Tensor& b, double y) {
  BOLIDE_TRY(dispatch(kFloats, a.dtype(), "a scale", []<class>() -> Result<> { return {}; }));
  BOLIDE_TRY(dispatch(kFloats, b.dtype(), "a scale", []<class>() -> Result<> { return {}; }));
  BOLIDE_TRY(const Tensor wide_a, cast(a, DType::kF64, c.pool()));
  BOLIDE_TRY(const Tensor wide_b, cast(b, DType::kF64, c.pool()));
  return combine_as<double, double, double>(c, wide_a, wide_b, [y](double p, double q) { return p * q / y; });
}

Result<> run_matmul_integer(RunContext& c) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  BOLIDE_TRY(const Tensor* zero_a, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* zero_b, c.tensor_if(3));
  Tensor zero;
  if (zero_a != nullptr) zero = by_row(*zero_a, *a);
  BOLIDE_TRY(const Tensor x, centred(c, *a, zero_a == nullptr ? nullptr : &zero, "A"));
  BOLIDE_TRY(const Tensor w, centred(c, *b, zero_b, "B"));
  BOLIDE_TRY(Tensor out, product(c, x, w));
  c.set(0, std::move(out));
  return {};
}

Result<> run_qlinear_matmul(RunContext& c) {
  std::array<const Tensor*, 8> in{};  // a, scale, zero, b, scale, zero, y's scale, zero
  for (size_t i = 0; i < in.size(); ++i) {
    BOLIDE_TRY(in[i], c.tensor(i));
  }
  const Tensor zero = by_row(*in[2], *in[0]);
  BOLIDE_TRY(const Tensor x, centred(c, *in[0], &zero, "a"));
  BOLIDE_TRY(const Tensor w, centred(c, *in[3], in[5], "b"));
  BOLIDE_TRY(const double scale, c.number(6, 1));
  BOLIDE_TRY(const double offset, c.number(7, 0));
  BOLIDE_TRY(const Tensor sums, product(c, x, w));
  BOLIDE_TRY(const Tensor factors, factor_of(c, by_row(*in[1], *in[0]), *in[4], scale));
  BOLIDE_TRY(Tensor out,
             requantise(c, sums, factors.elements() == 1 ? factors.reshaped({}) : factors, offset, in[7]->dtype()));
  c.set(0, std::move(out));
  return {};
}

// A convolution of x [N, C, ...] with w [M, C / groups, ...].
struct Geometry {
  int dims = 0;  // of space
  int64_t groups = 1;
  std::array<int64_t, kRankMax> stride{}, dilation{}, pad{}, out{};  // pad: before the first
  Shape shape;                                                       // of the result
};

Result<Geometry> geometry_of(const RunContext& c, const Shape& x, const Shape& w) {
  if (x.rank < 3 || w.rank != x.rank)
    return error(Code::kInvalid, fmt::format("a convolution of {} with {}", to_string(x), to_string(w)));
  Geometry g;
  g.dims = x.rank - 2;
  const auto count = static_cast<size_t>(g.dims);
  BOLIDE_TRY(g.groups, c.attributes().integer("group", 1));
  BOLIDE_TRY(const auto strides, c.attributes().integers("strides", std::vector<int64_t>(count, 1)));
  BOLIDE_TRY(const auto dilations, c.attributes().integers("dilations", std::vector<int64_t>(count, 1)));
  BOLIDE_TRY(const auto pads, c.attributes().integers("pads", std::vector<int64_t>(2 * count, 0)));
  BOLIDE_TRY(const auto kernel, c.attributes().integers("kernel_shape", {w.span().begin() + 2, w.span().end()}));
  BOLIDE_TRY(const size_t how, choice_of(c, "auto_pad", "NOTSET", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}));
  if (g.groups < 1 || g.groups > std::max<int64_t>(1, w[0]) || w[0] % g.groups != 0 || w[1] > x[1] ||
      w[1] * g.groups != x[1])
    return error(Code::kInvalid, fmt::format("group {} for x of {} and w of {}", g.groups, to_string(x), to_string(w)));
  if (strides.size() != count || dilations.size() != count || pads.size() != 2 * count || kernel.size() != count)
    return error(Code::kInvalid, fmt::format("strides, dilations, pads or kernel_shape are not of {} dims", count));
  constexpr int64_t kMost = int64_t{1} << 31;
  g.shape = x;
  g.shape[1] = w[0];
  for (size_t d = 0; d < count; ++d) {
    const auto axis = static_cast<int>(d) + 2;
    const int64_t begin = pads[d], end = pads[d + count];
    if (strides[d] < 1 || strides[d] > kMost || dilations[d] < 1 || dilations[d] > kMost || begin < 0 ||
        begin > kMost || end < 0 || end > kMost || kernel[d] != w[axis] || kernel[d] < 1 || kernel[d] > kMost ||
        x[axis] > kMost)
      return error(Code::kInvalid, fmt::format("dim {} of space: stride {}, dilation {}, pads {} and {}, kernel {}", d,
                                               strides[d], dilations[d], begin, end, kernel[d]));
    const int64_t reach = (kernel[d] - 1) * dilations[d] + 1;
    int64_t before = how == 0 ? begin : 0, after = how == 0 ? end : 0;
    if (how >= 2) {
      const int64_t wanted = (x[axis] + strides[d] - 1) / strides[d];
      const int64_t total = std::max<int64_t>(0, (wanted - 1) * strides[d] + reach - x[axis]);
      before = how == 2 ? total / 2 : total - total / 2;
      after = total - before;
    }
    const int64_t room = x[axis] + before + after - reach;
    if (room < 0)
      return error(Code::kInvalid, fmt::format("dim {} of space: a kernel over {} for {} elements", d, reach,
                                               x[axis] + before + after));
    g.stride[d] = strides[d], g.dilation[d] = dilations[d], g.pad[d] = before;
    g.out[d] = room / strides[d] + 1;
    g.shape[axis] = g.out[d];
  }
  return g;
}

// One channel of one image: out [space] += x [channels, space] * w [channels, kernel].
void convolve_channel(const Geometry& g, const Shape& x_shape, const Shape& w_shape, const int32_t* x, const int32_t* w,
                      uint32_t* out) {
  int64_t pixels = 1, taps = 1, places = 1;
  for (int d = 0; d < g.dims; ++d)
    pixels *= x_shape[d + 2], taps *= w_shape[d + 2], places *= g.out[static_cast<size_t>(d)];
  std::array<int64_t, kRankMax> at{};
  for (int64_t place = 0; place < places; ++place) {
    uint32_t sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t rest = tap, offset = 0, step = 1;
      bool inside = true;
      for (int d = g.dims - 1; d >= 0 && inside; --d) {
        const auto i = static_cast<size_t>(d);
        const int64_t p = at[i] * g.stride[i] - g.pad[i] + rest % w_shape[d + 2] * g.dilation[i];
        inside = p >= 0 && p < x_shape[d + 2];
        offset += p * step, step *= x_shape[d + 2], rest /= w_shape[d + 2];
      }
      if (!inside) continue;
      for (int64_t channel = 0; channel < w_shape[1]; ++channel)
        sum += static_cast<uint32_t>(x[channel * pixels + offset]) * static_cast<uint32_t>(w[channel * taps + tap]);
    }
    out[place] = sum;
    for (int d = g.dims - 1; d >= 0; --d) {
      const auto i = static_cast<size_t>(d);
      if (++at[i] < g.out[i]) break;
      at[i] = 0;
    }
  }
}

Result<Tensor> convolve(RunContext& c, const Tensor& x, const Tensor& w) {
  BOLIDE_TRY(const Geometry g, geometry_of(c, x.shape(), w.shape()));
  BOLIDE_TRY(Tensor out, c.scratch(DType::kI32, g.shape));
  if (out.elements() == 0) return out;
  const int64_t channels = w.dim(0), each = channels / g.groups;
  const int64_t image = x.elements() / x.dim(0), kernel = w.elements() / channels;
  const int64_t places = out.elements() / (x.dim(0) * channels);
  auto* const to = reinterpret_cast<uint32_t*>(out.mutate<int32_t>().data());
  c.workers().run(x.dim(0) * channels, [&](int64_t chunk, int) {
    const int64_t n = chunk / channels, m = chunk % channels;
    convolve_channel(g, x.shape(), w.shape(), x.as<int32_t>().data() + n * image + m / each * (image / g.groups),
                     w.as<int32_t>().data() + m * kernel, to + chunk * places);
  });
  return out;
}

// What belongs to output channels, [M], as it broadcasts to tensors of `rank` dims with M at `axis`.
Result<Tensor> by_channel(const Tensor& p, int64_t channels, int rank, int axis) {
  if (p.elements() == 1) return p.reshaped({});
  if (p.rank() != 1 || p.dim(0) != channels)
    return error(Code::kInvalid, fmt::format("{} for {} output channels", to_string(p.shape()), channels));
  Shape shape;
  shape.rank = rank - axis;
  for (int i = 0; i < shape.rank; ++i) shape[i] = i == 0 ? channels : 1;
  return p.reshaped(shape);
}

Result<Tensor> centred_weights(RunContext& c, const Tensor& w, const Tensor* zero) {
  if (zero == nullptr || w.rank() == 0) return centred(c, w, nullptr, "w");
  BOLIDE_TRY(const Tensor spread, by_channel(*zero, w.dim(0), w.rank(), 0));
  return centred(c, w, &spread, "w");
}

Result<Tensor> centred_pixels(RunContext& c, const Tensor& x, const Tensor* zero) {
  if (zero != nullptr && zero->elements() != 1)
    return error(Code::kInvalid, fmt::format("x has a zero point of {}, expected one", to_string(zero->shape())));
  const Tensor one = zero == nullptr ? Tensor() : zero->reshaped({});
  return centred(c, x, zero == nullptr ? nullptr : &one, "x");
}

Result<> run_conv_integer(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* zero_x, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* zero_w, c.tensor_if(3));
  BOLIDE_TRY(const Tensor pixels, centred_pixels(c, *x, zero_x));
  BOLIDE_TRY(const Tensor weights, centred_weights(c, *w, zero_w));
  BOLIDE_TRY(Tensor out, convolve(c, pixels, weights));
  c.set(0, std::move(out));
  return {};
}

Result<> run_qlinear_conv(RunContext& c) {
  std::array<const Tensor*, 8> in{};  // x, scale, zero, w, scale, zero, y's scale, zero
  for (size_t i = 0; i < in.size(); ++i) {
    BOLIDE_TRY(in[i], c.tensor(i));
  }
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(8));
  BOLIDE_TRY(const Tensor pixels, centred_pixels(c, *in[0], in[2]));
  BOLIDE_TRY(const Tensor weights, centred_weights(c, *in[3], in[5]));
  BOLIDE_TRY(const double scale, c.number(6, 1));
  BOLIDE_TRY(const double offset, c.number(7, 0));
  BOLIDE_TRY(Tensor sums, convolve(c, pixels, weights));
  if (bias != nullptr) {
    if (bias->dtype() != DType::kI32)
      return error(Code::kInvalid, fmt::format("a bias of {}, expected i32", to_string(bias->dtype())));
    BOLIDE_TRY(const Tensor spread, by_channel(*bias, weights.dim(0), sums.rank(), 1));
    BOLIDE_TRY(sums, (combine_as<int32_t, int32_t, int32_t>(c, sums, spread, [](int32_t a, int32_t b) {
                 return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
               })));
  }
  if (in[1]->elements() != 1)
    return error(Code::kInvalid, fmt::format("x has a scale of {}, expected one", to_string(in[1]->shape())));
  BOLIDE_TRY(const Tensor scales, by_channel(*in[4], weights.dim(0), sums.rank(), 1));
  BOLIDE_TRY(const Tensor factors, factor_of(c, in[1]->reshaped({}), scales, scale));
  BOLIDE_TRY(Tensor out, requantise(c, sums, factors, offset, in[7]->dtype()));
  c.set(0, std::move(out));
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "MatMulInteger", .since = 10, .run = run_matmul_integer, .prepare = prepare_matmul_integer},
    {.domain = "", .name = "QLinearMatMul", .since = 10, .run = run_qlinear_matmul},
    {.domain = "", .name = "ConvInteger", .since = 10, .run = run_conv_integer},
    {.domain = "", .name = "QLinearConv", .since = 10, .run = run_qlinear_conv},
};

}  // namespace

std::span<const OpDef> quantised_product_ops() { return kRows; }

}  // namespace bolide
