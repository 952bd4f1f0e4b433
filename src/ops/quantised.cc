// The rows of quantised.h with their definitions in plain loops.
#include "ops/quantised.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/dense.h"
#include "ops/prepared_op.h"
#include "ops/quantise.h"
#include "ops/quantise_prepared.h"
#include "ops/shape.h"

namespace bolide {
namespace {

Result<float> scale_in(const Tensor* t, std::string_view name) {
  if (t == nullptr || t->dtype() != DType::kF32 || t->elements() != 1)
    return error(
        Code::kInvalid,
        fmt::format("{} is {}, expected one f32", name,
                    t == nullptr ? "absent" : fmt::format("{}{}", to_string(t->dtype()), to_string(t->shape()))));
  return t->as<float>()[0];
}

int32_t code_at(const Tensor& t, int64_t i) {
  const auto at = static_cast<size_t>(i);
  return t.dtype() == DType::kI8 ? t.as<int8_t>()[at] : t.as<uint8_t>()[at];
}

bool is_byte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }

Result<QuantisedSpec::Codes> codes_in(const Attributes& attributes, QuantisedTensor tensor, size_t scale,
                                      std::string_view name, std::string_view bounds) {
  QuantisedSpec::Codes codes;
  BOLIDE_TRY(codes.scale, scale_in(tensor(scale), fmt::format("{}'s scale", name)));
  const Tensor* zero = tensor(scale + 1);
  if (zero == nullptr || !is_byte(zero->dtype()) || zero->elements() != 1)
    return error(Code::kInvalid, fmt::format("{}'s zero point is no u8 or i8", name));
  codes.dtype = zero->dtype();
  codes.zero = code_at(*zero, 0);
  const auto range = code_range(codes.dtype);
  const auto least = static_cast<int64_t>(range->first), most = static_cast<int64_t>(range->second);
  BOLIDE_TRY(const int64_t low, attributes.integer(fmt::format("{}minimum", bounds), least));
  BOLIDE_TRY(const int64_t high, attributes.integer(fmt::format("{}maximum", bounds), most));
  if (low < least || high > most || low > high)
    return error(Code::kInvalid, fmt::format("bounds {} to {} of {}", low, high, to_string(codes.dtype)));
  codes.low = static_cast<float>(low - codes.zero), codes.high = static_cast<float>(high - codes.zero);
  return codes;
}

template <class T>
Result<std::vector<T>> by_column(const Tensor* t, DType dtype, int64_t columns, std::string_view name) {
  if (t->dtype() != dtype || (t->elements() != 1 && (t->elements() != columns || t->rank() != 1)))
    return error(Code::kInvalid,
                 fmt::format("{} is {}{} for {} columns", name, to_string(t->dtype()), to_string(t->shape()), columns));
  return std::vector<T>(t->as<T>().begin(), t->as<T>().end());
}

// What a sum becomes; `residual` is its code.
float finished(const QuantisedSpec& s, uint32_t sum, int64_t n, int32_t residual) {
  const float v = static_cast<float>(static_cast<int32_t>(sum)) * s.factor(n);
  if (!s.has_codes) return v;
  const float code = std::clamp(std::nearbyint(v), s.y.low, s.y.high);
  if (!s.has_residual) return code + static_cast<float>(s.y.zero);
  const QuantisedSpec::Sum sum_of = s.second_sum();
  const float other = std::fma(static_cast<float>(residual), sum_of.residual_ratio, sum_of.rest);
  return std::clamp(std::nearbyint(std::fma(code, sum_of.ratio, other)), sum_of.low, sum_of.high);
}

// out[i] of columns i % columns, from sums that `sum` gives.
template <class F>
Result<> emit_sums(RunContext& c, const QuantisedSpec& s, const Shape& shape, int64_t columns, F&& sum) {
  const Tensor* residual = nullptr;
  if (s.has_residual) {
    BOLIDE_TRY(residual, c.tensor(kResidual));
    const bool row = residual->rank() == 1 && residual->elements() == columns;
    if (residual->dtype() != s.residual.dtype || (!row && residual->shape() != shape))
      return error(Code::kInvalid,
                   fmt::format("a residual of {}{} for {}{}", to_string(residual->dtype()),
                               to_string(residual->shape()), to_string(s.residual.dtype), to_string(shape)));
  }
  BOLIDE_TRY(Tensor * y, c.make(0, s.out_dtype(), shape));
  const int64_t repeat = residual != nullptr && residual->shape() != shape ? columns : INT64_MAX;
  parallel(c.workers(), y->elements(), 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float v = finished(s, sum(i), i % columns, residual == nullptr ? 0 : code_at(*residual, i % repeat));
      const auto at = static_cast<size_t>(i);
      if (y->dtype() == DType::kF32)
        y->mutate<float>()[at] = v;
      else
        y->mutate<uint8_t>()[at] = static_cast<uint8_t>(static_cast<int32_t>(v));
    }
  });
  return {};
}

Result<> check_x(const QuantisedSpec& s, const Tensor& x, const Tensor& w) {
  if (x.dtype() == s.x.dtype && is_byte(w.dtype())) return {};
  return error(Code::kInvalid, fmt::format("x is of {}, its zero point of {}, w of {}", to_string(x.dtype()),
                                           to_string(s.x.dtype), to_string(w.dtype())));
}

Result<QuantisedSpec> spec_of(RunContext& c, const Tensor& w, bool conv, bool transposed) {
  if (w.rank() < 2) return error(Code::kInvalid, fmt::format("w is {}", to_string(w.shape())));
  for (const size_t i : {kXScale, kXZero, kWScale, kWZero, kYScale, kYZero, kBias, kResidual, kResidualScale,
                         kResidualZero, kSumScale, kSumZero})
    BOLIDE_TRY(c.tensor_if(i));
  const auto tensor = [&](size_t i) { return c.has(i) ? c.value(i)->tensor() : nullptr; };
  return read_quantised(c.attributes(), tensor, quantised_columns(w.shape(), conv, transposed));
}

Result<> run_quantised_conv(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(kX));
  BOLIDE_TRY(const Tensor* w, c.tensor(kW));
  BOLIDE_TRY(const int64_t first, c.attributes().integer("x_channels_first", 0));
  BOLIDE_TRY(const QuantisedSpec s, spec_of(c, *w, true, false));
  BOLIDE_TRY(check_x(s, *x, *w));
  BOLIDE_TRY(const Convolution conv, quantised_convolution(c, *x, *w, first != 0));
  const Window& window = conv.window;
  const auto rank = static_cast<size_t>(window.rank);
  const int64_t pixels = window.inputs(), each = conv.C / conv.groups, taps = window.taps();
  const int64_t channel_step = first != 0 ? pixels : 1, pixel_step = first != 0 ? 1 : conv.C;
  const int64_t outputs = window.outputs();
  return emit_sums(c, s, channels_last(conv.shape), conv.M, [&](int64_t i) {
    const int64_t m = i % conv.M, n = i / conv.M / outputs;
    SpatialDims at{}, tap{};
    int64_t rest = i / conv.M % outputs;
    for (size_t d = rank; d-- > 0;) at[d] = rest % window.output[d], rest /= window.output[d];
    uint32_t sum = s.bias.empty() ? 0 : static_cast<uint32_t>(s.bias[static_cast<size_t>(m)]);
    int64_t t = 0;
    do {
      int64_t pixel = 0;
      bool inside = true;
      for (size_t d = 0; d < rank; ++d) {
        const int64_t p = at[d] * window.stride[d] + tap[d] * window.dilation[d] - window.begin[d];
        inside = inside && p >= 0 && p < window.input[d];
        pixel = pixel * window.input[d] + p;
      }
      for (int64_t k = 0; inside && k < each; ++k) {
        const int64_t channel = m / (conv.M / conv.groups) * each + k;
        const int32_t v = code_at(*x, n * pixels * conv.C + channel * channel_step + pixel * pixel_step) - s.x.zero;
        sum += static_cast<uint32_t>(v * (code_at(*w, (m * each + k) * taps + t) - s.w_zero_of(m)));
      }
      ++t;
    } while (step({window.kernel.data(), rank}, {tap.data(), rank}));
    return sum;
  });
}

Result<> run_quantised_matmul(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(kX));
  BOLIDE_TRY(const Tensor* w, c.tensor(kW));
  BOLIDE_TRY(const int64_t transposed, c.attributes().integer("transB", 0));
  BOLIDE_TRY(const QuantisedSpec s, spec_of(c, *w, false, transposed != 0));
  BOLIDE_TRY(check_x(s, *x, *w));
  if (x->rank() < 1) return error(Code::kInvalid, "x is a scalar");
  const int64_t K = x->dim(-1), N = w->dim(transposed != 0 ? -2 : -1), M = x->rank() > 1 ? x->dim(-2) : 1;
  if (w->dim(transposed != 0 ? -1 : -2) != K)
    return error(Code::kInvalid, fmt::format("a product of {} and {}", to_string(x->shape()), to_string(w->shape())));
  const auto batch_of = [](const Tensor& t) {
    return t.rank() <= 2 ? Shape{} : Shape(t.shape().span().first(static_cast<size_t>(t.rank() - 2)));
  };
  BOLIDE_TRY(const Shape batch, broadcast(batch_of(*x), batch_of(*w)));
  Shape shape = batch;
  if (shape.rank + 2 > kRankMax) return error(Code::kUnsupported, "a product of too many dims");
  if (x->rank() > 1) shape.dims[static_cast<size_t>(shape.rank++)] = M;
  shape.dims[static_cast<size_t>(shape.rank++)] = N;
  BOLIDE_TRY(product_of(shape.span()));
  std::vector<std::array<int64_t, 2>> batches(static_cast<size_t>(batch.elements()));
  for_each_offset(batch, broadcast_strides(batch_of(*x), batch), broadcast_strides(batch_of(*w), batch),
                  [&](int64_t i, int64_t from_x, int64_t from_w) {
                    batches[static_cast<size_t>(i)] = {from_x * M * K, from_w * K * N};
                  });
  return emit_sums(c, s, shape, N, [&](int64_t i) {
    const int64_t n = i % N;
    const auto [from_x, from_w] = batches[static_cast<size_t>(i / N / M)];
    uint32_t sum = s.bias.empty() ? 0 : static_cast<uint32_t>(s.bias[static_cast<size_t>(n)]);
    for (int64_t k = 0; k < K; ++k) {
      const int64_t at = from_w + (transposed != 0 ? n * K + k : k * N + n);
      const int32_t a = code_at(*x, from_x + i / N % M * K + k) - s.x.zero;
      sum += static_cast<uint32_t>(a * (code_at(*w, at) - s.w_zero_of(n)));
    }
    return sum;
  });
}

// out[k] = the larger, as bytes that are compared after `flip` is added.
void keep_larger(const uint8_t* __restrict in, uint8_t* __restrict out, int64_t n, uint8_t flip) {
  if (flip == 0)
    for (int64_t k = 0; k < n; ++k) out[k] = in[k] > out[k] ? in[k] : out[k];
  else
    for (int64_t k = 0; k < n; ++k) {
      const auto v = static_cast<uint8_t>(in[k] ^ 0x80);
      out[k] = v > out[k] ? v : out[k];
    }
}

Result<> run_quantised_max_pool(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (!is_byte(x->dtype()) || x->rank() < 3)
    return error(Code::kInvalid, fmt::format("x is {}{}", to_string(x->dtype()), to_string(x->shape())));
  Shape first = x->shape();
  first[1] = x->dim(-1);
  for (int i = 2; i < x->rank(); ++i) first[i] = x->dim(i - 1);
  BOLIDE_TRY(const int64_t ceil, c.attributes().integer("ceil_mode", 0));
  BOLIDE_TRY(const Window window, forward_window(c, x->reshaped(first), {}, ceil != 0));
  BOLIDE_TRY(const Shape shape, output_shape(window, x->dim(0), x->dim(-1)));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), channels_last(shape)));
  const auto rank = static_cast<size_t>(window.rank);
  const int64_t C = x->dim(-1), outputs = window.outputs();
  const uint8_t flip = x->dtype() == DType::kI8 ? 0x80 : 0;
  const auto* const from = reinterpret_cast<const uint8_t*>(x->data());
  auto* const to = reinterpret_cast<uint8_t*>(y->mutable_data());
  parallel(c.workers(), y->elements() / std::max<int64_t>(C, 1), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      SpatialDims at{}, tap{};
      int64_t rest = i % outputs;
      for (size_t d = rank; d-- > 0;) at[d] = rest % window.output[d], rest /= window.output[d];
      uint8_t* const out = to + i * C;
      std::fill_n(out, C, uint8_t{0});
      const size_t last = rank - 1;  // along which taps lie evenly
      const int64_t x0 = at[last] * window.stride[last] - window.begin[last], apart = window.dilation[last];
      const int64_t first_tap = x0 < 0 ? (-x0 + apart - 1) / apart : 0;
      const int64_t end_tap = std::min(
          window.kernel[last], x0 >= window.input[last] ? int64_t{0} : (window.input[last] - 1 - x0) / apart + 1);
      do {
        int64_t line = i / outputs;
        bool inside = true;
        for (size_t d = 0; d < last; ++d) {
          const int64_t p = at[d] * window.stride[d] + tap[d] * window.dilation[d] - window.begin[d];
          inside = inside && p >= 0 && p < window.input[d];
          line = line * window.input[d] + p;
        }
        if (!inside) continue;
        for (int64_t t = first_tap; t < end_tap; ++t)
          keep_larger(from + (line * window.input[last] + x0 + t * apart) * C, out, C, flip);
      } while (step({window.kernel.data(), last}, {tap.data(), last}));
      if (flip != 0)
        for (int64_t k = 0; k < C; ++k) out[k] ^= flip;
    }
  });
  return {};
}

Result<> run_look_up(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* table, c.tensor(1));
  if (!is_byte(x->dtype()) || !is_byte(table->dtype()) || table->elements() != 256)
    return error(Code::kInvalid, fmt::format("x of {}, a table of {}{}", to_string(x->dtype()),
                                             to_string(table->dtype()), to_string(table->shape())));
  BOLIDE_TRY(Tensor * y, c.make(0, table->dtype(), x->shape()));
  const auto* const from = reinterpret_cast<const uint8_t*>(x->data());
  const auto* const entries = reinterpret_cast<const uint8_t*>(table->data());
  auto* const to = reinterpret_cast<uint8_t*>(y->mutable_data());
  parallel(c.workers(), x->elements(), 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = entries[from[i]];
  });
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "bolide", .name = "QConv", .run = run_quantised_conv, .prepare = prepare_quantised_conv},
    {.domain = "bolide", .name = "QMatMul", .run = run_quantised_matmul, .prepare = prepare_quantised_matmul},
    {.domain = "bolide", .name = "QMaxPool", .run = run_quantised_max_pool},
    {.domain = "bolide", .name = "QLookUp", .run = run_look_up, .prepare = prepare_look_up},
};

}  // namespace

Shape channels_last(const Shape& shape) {
  Shape to = shape;
  for (int i = 1; i + 1 < shape.rank; ++i) to[i] = shape[i + 1];
  to[-1] = shape[1];
  return to;
}

int64_t quantised_columns(const Shape& w, bool conv, bool transposed) {
  return conv ? w[0] : transposed ? w[-2] : w[-1];
}

Result<Convolution> quantised_convolution(const RunContext& c, const Tensor& x, const Tensor& w, bool channels_first) {
  if (channels_first || x.rank() < 3) return read_convolution(c, x, w, nullptr);
  Shape first = x.shape();
  first[1] = x.dim(-1);
  for (int i = 2; i < x.rank(); ++i) first[i] = x.dim(i - 1);
  return read_convolution(c, x.reshaped(first), w, nullptr);
}

Result<QuantisedSpec> read_quantised(const Attributes& attributes, QuantisedTensor tensor, int64_t columns) {
  QuantisedSpec s;
  BOLIDE_TRY(s.x, codes_in(Attributes(), tensor, kXScale, "x", ""));
  const Tensor* scale = tensor(kWScale);
  if (scale == nullptr) return error(Code::kInvalid, "w has no scale");
  BOLIDE_TRY(s.w_scale, by_column<float>(scale, DType::kF32, columns, "w's scale"));
  s.w_dtype = DType::kI8;
  s.w_zero = {0};
  if (const Tensor* zero = tensor(kWZero)) {
    s.w_dtype = zero->dtype();
    if (!is_byte(s.w_dtype) || (zero->elements() != 1 && zero->elements() != columns))
      return error(Code::kInvalid,
                   fmt::format("w's zero point is {}{}", to_string(zero->dtype()), to_string(zero->shape())));
    s.w_zero.clear();
    for (int64_t i = 0; i < zero->elements(); ++i) s.w_zero.push_back(code_at(*zero, i));
  }
  if (const Tensor* bias = tensor(kBias)) {
    BOLIDE_TRY(s.bias, by_column<int32_t>(bias, DType::kI32, columns, "the bias"));
    if (bias->elements() != columns) s.bias.assign(static_cast<size_t>(columns), bias->as<int32_t>()[0]);
  }
  s.has_codes = tensor(kYScale) != nullptr;
  s.has_residual = tensor(kResidual) != nullptr;
  if (s.has_codes) {
    BOLIDE_TRY(s.y, codes_in(attributes, tensor, kYScale, "y", ""));
  }
  if (!s.has_residual) return s;
  if (!s.has_codes) return error(Code::kInvalid, "a residual needs y's scale");
  BOLIDE_TRY(s.residual, codes_in(Attributes(), tensor, kResidualScale, "the residual", ""));
  BOLIDE_TRY(s.sum, codes_in(attributes, tensor, kSumScale, "the sum", "sum_"));
  return s;
}

std::span<const OpDef> quantised_ops() { return kRows; }

}  // namespace bolide
