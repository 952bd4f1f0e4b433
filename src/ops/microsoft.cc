#include "ops/microsoft.h"

#include <cmath>
#include <numbers>

#include "ops/channels_last.h"
#include "ops/convolution.h"
#include "ops/dense.h"
#include "ops/matrix.h"
#include "ops/normalise.h"
#include "ops/ops.h"
#include "ops/prepared_op.h"
#include "ops/prepared_rows.h"
#include "ops/quantise_prepared.h"
#include "ops/shape.h"

namespace bolide {
namespace {

// One operand of a FusedMatMul: which axes are the matrix's rows and columns, and which the batch.
struct Operand {
  Shape batch;
  Strides strides{};  // of the batch
  int64_t rows = 1, columns = 1, row = 0, column = 0;

  static Operand of(const Shape& shape, bool turn, bool turn_batch, bool left) {
    Operand to;
    const Strides strides = strides_of(shape);
    if (shape.rank == 1) {
      (left ? to.columns : to.rows) = shape[0];
      (left ? to.column : to.row) = 1;
      return to;
    }
    const int row_axis = turn_batch ? 0 : shape.rank - 2;
    for (int i = 0; i + 1 < shape.rank; ++i) {
      if (i == row_axis) continue;
      to.strides[static_cast<size_t>(to.batch.rank)] = strides[static_cast<size_t>(i)];
      to.batch.dims[static_cast<size_t>(to.batch.rank++)] = shape[i];
    }
    to.rows = shape[row_axis], to.row = strides[static_cast<size_t>(row_axis)];
    to.columns = shape[-1], to.column = 1;
    if (turn) std::swap(to.rows, to.columns), std::swap(to.row, to.column);
    return to;
  }
  // Strides of its batch read as `wide`.
  Strides within(const Shape& wide) const {
    Strides to{};
    for (int i = 1; i <= batch.rank; ++i)
      if (batch[-i] != 1) to[static_cast<size_t>(wide.rank - i)] = strides[static_cast<size_t>(batch.rank - i)];
    return to;
  }
};

Result<> run_fused_matmul(RunContext& c) {
  const Attributes& attributes = c.attributes();
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  BOLIDE_TRY(const float alpha, attributes.number("alpha", 1));
  BOLIDE_TRY(const int64_t turn_a, attributes.integer("transA", 0));
  BOLIDE_TRY(const int64_t turn_b, attributes.integer("transB", 0));
  BOLIDE_TRY(const int64_t batch_a, attributes.integer("transBatchA", 0));
  BOLIDE_TRY(const int64_t batch_b, attributes.integer("transBatchB", 0));
  if (a->rank() == 0 || b->rank() == 0 || a->dtype() != b->dtype())
    return error(Code::kInvalid, fmt::format("A is {}{}, B {}{}", to_string(a->dtype()), to_string(a->shape()),
                                             to_string(b->dtype()), to_string(b->shape())));
  const Operand left = Operand::of(a->shape(), turn_a != 0, batch_a != 0, true);
  const Operand right = Operand::of(b->shape(), turn_b != 0, batch_b != 0, false);
  if (left.columns != right.rows)
    return error(Code::kInvalid,
                 fmt::format("A {} and B {} have no product", to_string(a->shape()), to_string(b->shape())));
  BOLIDE_TRY(const Shape batch, broadcast(left.batch, right.batch));
  if (batch.rank + 2 > kRankMax) return error(Code::kUnsupported, "a product of too many dims");
  Shape shape = batch;
  const int64_t M = left.rows, N = right.columns, K = left.columns;
  if (a->rank() > 1) shape.dims[static_cast<size_t>(shape.rank++)] = M;
  if (b->rank() > 1) shape.dims[static_cast<size_t>(shape.rank++)] = N;
  BOLIDE_TRY(product_of(shape.span()));
  BOLIDE_TRY(const int64_t count, product_of(batch.span()));
  std::vector<std::pair<int64_t, int64_t>> at;
  at.reserve(static_cast<size_t>(count));
  for_each_offset(batch, left.within(batch), right.within(batch),
                  [&](int64_t, int64_t from_a, int64_t from_b) { at.emplace_back(from_a, from_b); });
  return in_float(a->dtype(), "A", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_a, widened<T>(c, *a));
    BOLIDE_TRY(const Tensor wide_b, widened<T>(c, *b));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    multiply<T>(c.workers(), M, N, K, count, [&](int64_t i) {
      const auto [from_a, from_b] = at[static_cast<size_t>(i)];
      return Product<T>{{wide_a.as<T>().data() + from_a, left.row, left.column},
                        {wide_b.as<T>().data() + from_b, right.row, right.column},
                        y.mutate<T>().data() + i * M * N,
                        N};
    });
    if (alpha != 1)
      for (T& value : y.mutate<T>()) value *= static_cast<T>(alpha);
    return emit(c, 0, a->dtype(), std::move(y));
  });
}

// f(x + bias), where the bias (input 1) is of the last axis and may be absent.
template <class F>
Result<> map(RunContext& c, bool biased, F&& f) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* bias, biased ? c.tensor_if(1) : Result<const Tensor*>(nullptr));
  if (bias != nullptr && (x->rank() == 0 || bias->elements() != x->dim(-1)))
    return error(Code::kInvalid,
                 fmt::format("the bias is {} for an input {}", to_string(bias->shape()), to_string(x->shape())));
  return in_float(x->dtype(), "the input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor added, bias != nullptr ? widened<T>(c, *bias) : Result<Tensor>(Tensor()));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    const int64_t row = added ? added.elements() : 1;
    parallel(c.workers(), y.elements(), 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        const T shift = added ? added.as<T>()[static_cast<size_t>(i % row)] : T{};
        y.mutate<T>()[at] = static_cast<T>(f(static_cast<double>(wide.as<T>()[at] + shift)));
      }
    });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

Result<> run_gelu(RunContext& c) { return map(c, false, gelu); }
Result<> run_bias_gelu(RunContext& c) { return map(c, true, gelu); }
Result<> run_fast_gelu(RunContext& c) {  // Hendrycks & Gimpel 2016, the form with tanh
  return map(c, true, [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  });
}
Result<> run_quick_gelu(RunContext& c) {
  BOLIDE_TRY(const float alpha, c.attributes().number("alpha", 1.702f));
  return map(c, false, [a = static_cast<double>(alpha)](double x) { return x / (1 + std::exp(-a * x)); });
}

Result<double> read_epsilon(const RunContext& c, float standard) {
  BOLIDE_TRY(const float epsilon, c.attributes().number("epsilon", standard));
  return static_cast<double>(epsilon);
}

Result<> run_layer_normalization(RunContext& c) {
  BOLIDE_TRY(const int64_t axis, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const double epsilon, read_epsilon(c, 1e-5f));
  return normalise_rows(c, {.axis = axis, .epsilon = epsilon, .scale = 1, .bias = 2, .mean = 1, .inverse = 2});
}
Result<> run_simplified_layer_normalization(RunContext& c) {
  BOLIDE_TRY(const int64_t axis, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const double epsilon, read_epsilon(c, 1e-5f));
  return normalise_rows(c, {.axis = axis, .epsilon = epsilon, .centred = false, .scale = 1, .inverse = 1});
}
Result<> run_skip_layer_normalization(RunContext& c) {
  BOLIDE_TRY(const double epsilon, read_epsilon(c, 1e-12f));
  return normalise_rows(
      c, {.epsilon = epsilon, .scale = 2, .bias = 3, .skip = 1, .skip_bias = 4, .mean = 1, .inverse = 2, .sum = 3});
}
Result<> run_skip_simplified_layer_normalization(RunContext& c) {
  BOLIDE_TRY(const double epsilon, read_epsilon(c, 1e-12f));
  return normalise_rows(
      c,
      {.epsilon = epsilon, .centred = false, .scale = 2, .skip = 1, .skip_bias = 3, .mean = 1, .inverse = 2, .sum = 3});
}

// The activation that a fused op names, with two parameters whose meaning it decides.
struct Fused {
  enum class Kind : uint8_t { kNone, kRelu, kTanh, kSigmoid, kLeakyRelu, kClip, kHardSigmoid, kHardSwish, kSilu };
  Kind kind = Kind::kNone;
  double a = 0, b = 0;

  static Result<Fused> of(std::string_view name, double a, double b) {
    constexpr std::pair<std::string_view, Kind> kNames[] = {{"", Kind::kNone},
                                                            {"Relu", Kind::kRelu},
                                                            {"Tanh", Kind::kTanh},
                                                            {"Sigmoid", Kind::kSigmoid},
                                                            {"LeakyRelu", Kind::kLeakyRelu},
                                                            {"Clip", Kind::kClip},
                                                            {"HardSigmoid", Kind::kHardSigmoid},
                                                            {"HardSwish", Kind::kHardSwish},
                                                            {"Silu", Kind::kSilu}};
    for (const auto& [known, kind] : kNames)
      if (known == name) return Fused{kind, a, b};
    return error(Code::kUnsupported, fmt::format("activation '{:.40}'", name));
  }
  double operator()(double x) const {
    double y = x;
    apply(&y, static_cast<const double*>(nullptr), 1);
    return y;
  }
  // y = f(y + z) for n elements; z may be null. The kind is looked at once, so that loops of simple ones vectorise.
  template <class T>
  void apply(T* y, const T* z, int64_t n) const {
    const auto each = [&](auto f) {
      for (int64_t i = 0; i < n; ++i) y[i] = f(z != nullptr ? y[i] + z[i] : y[i]);
    };
    const T p = static_cast<T>(a), q = static_cast<T>(b);
    const auto sigmoid = [](T x) { return 1 / (1 + std::exp(-x)); };
    switch (kind) {
      case Kind::kNone: return each([](T x) { return x; });
      case Kind::kRelu: return each([](T x) { return x < 0 ? T(0) : x; });
      case Kind::kTanh: return each([](T x) { return std::tanh(x); });
      case Kind::kSigmoid: return each(sigmoid);
      case Kind::kLeakyRelu: return each([p](T x) { return x >= 0 ? x : p * x; });
      case Kind::kClip: return each([p, q](T x) { return x < p ? p : x > q ? q : x; });
      case Kind::kHardSigmoid: return each([p, q](T x) { return std::min(std::max(p * x + q, T(0)), T(1)); });
      case Kind::kHardSwish:
        return each([](T x) { return x * std::min(std::max(x * (T(1) / 6) + T(0.5), T(0)), T(1)); });
      case Kind::kSilu: return each([sigmoid](T x) { return x * sigmoid(x); });
    }
  }
};

// f(conv(X, W, B) + Z)
Result<> run_fused_conv(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* b, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* z, c.tensor_if(3));
  BOLIDE_TRY(const std::string name, c.attributes().text("activation", ""));
  BOLIDE_TRY(const auto parameters, c.attributes().numbers("activation_params"));
  const auto parameter = [&](size_t i) { return i < parameters.size() ? static_cast<double>(parameters[i]) : 0.0; };
  BOLIDE_TRY(const Fused f, Fused::of(name, parameter(0), parameter(1)));
  BOLIDE_TRY(const Convolution convolution, read_convolution(c, *x, *w, b));
  if (z != nullptr) BOLIDE_TRY(expect_shape(*z, convolution.shape, "Z"));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_x, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor wide_w, widened<T>(c, *w));
    BOLIDE_TRY(const Tensor wide_b, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor wide_z, widened_if<T>(c, 3));
    BOLIDE_TRY(Tensor y, convolve<T>(c, convolution, wide_x, wide_w, wide_b));
    T* const out = y.mutate<T>().data();
    const T* const added = wide_z ? wide_z.as<T>().data() : nullptr;
    if (f.kind != Fused::Kind::kNone || added != nullptr)
      parallel(c.workers(), y.elements(), 16384, [&](int64_t begin, int64_t end) {
        f.apply(out + begin, added == nullptr ? nullptr : added + begin, end - begin);
      });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

Result<> run_fused_gemm(RunContext& c) {
  BOLIDE_TRY(const std::string name, c.attributes().text("activation", ""));
  BOLIDE_TRY(const float alpha, c.attributes().number("activation_alpha", name == "LeakyRelu" ? 0.01f : 0.2f));
  BOLIDE_TRY(const float beta, c.attributes().number("activation_beta", 0.5f));
  BOLIDE_TRY(const Fused f, Fused::of(name, static_cast<double>(alpha), static_cast<double>(beta)));
  const FunctionRef<double(double)> then = f;
  return gemm_then(c, &then);
}

constexpr std::string_view kMicrosoft = "com.microsoft";
constexpr OpDef kOps[] = {
    {.domain = kMicrosoft, .name = "FusedMatMul", .run = run_fused_matmul, .prepare = prepare_matmul},
    {.domain = kMicrosoft, .name = "FusedConv", .run = run_fused_conv, .prepare = prepare_conv},
    {.domain = kMicrosoft, .name = "FusedGemm", .run = run_fused_gemm, .prepare = prepare_gemm},
    {.domain = kMicrosoft, .name = "Gelu", .run = run_gelu, .prepare = prepare_unary<isa::kRowGelu>},
    {.domain = kMicrosoft, .name = "BiasGelu", .run = run_bias_gelu, .prepare = prepare_unary<isa::kRowGelu, true>},
    {.domain = kMicrosoft, .name = "FastGelu", .run = run_fast_gelu, .prepare = prepare_unary<isa::kRowGeluTanh, true>},
    {kMicrosoft, "QuickGelu", 1, run_quick_gelu},
    {.domain = kMicrosoft, .name = "LayerNormalization", .run = run_layer_normalization, .prepare = prepare_layer_norm},
    {.domain = kMicrosoft,
     .name = "SimplifiedLayerNormalization",
     .run = run_simplified_layer_normalization,
     .prepare = prepare_rms_norm},
    {"", "SimplifiedLayerNormalization", 1, run_simplified_layer_normalization},  // where ONNX Runtime has it
    {.domain = kMicrosoft,
     .name = "SkipLayerNormalization",
     .run = run_skip_layer_normalization,
     .prepare = prepare_skip_layer_norm},
    {.domain = kMicrosoft,
     .name = "SkipSimplifiedLayerNormalization",
     .run = run_skip_simplified_layer_normalization,
     .prepare = prepare_skip_rms_norm},
    {.domain = kMicrosoft, .name = "Attention", .run = run_microsoft_attention, .prepare = prepare_microsoft_attention},
    {.domain = kMicrosoft,
     .name = "MultiHeadAttention",
     .run = run_multi_head_attention,
     .prepare = prepare_multi_head_attention},
    {.domain = kMicrosoft,
     .name = "GroupQueryAttention",
     .run = run_group_query_attention,
     .prepare = prepare_group_query_attention},
    {.domain = kMicrosoft,
     .name = "RotaryEmbedding",
     .run = run_microsoft_rotary_embedding,
     .prepare = prepare_microsoft_rotary},
    {.domain = kMicrosoft, .name = "MatMulNBits", .run = run_matmul_nbits, .prepare = prepare_matmul_nbits},
    {.domain = kMicrosoft,
     .name = "DynamicQuantizeMatMul",
     .run = run_dynamic_quantize_matmul,
     .prepare = prepare_dynamic_quantize_matmul},
    {.domain = kMicrosoft,
     .name = "DynamicQuantizeLSTM",
     .run = run_dynamic_quantize_lstm,
     .prepare = prepare_dynamic_quantize_lstm},
    {.domain = kMicrosoft,
     .name = "MatMulIntegerToFloat",
     .run = run_matmul_integer_to_float,
     .prepare = prepare_matmul_integer_to_float},
    {kMicrosoft, "QGemm", 1, run_qgemm},
    {.domain = kMicrosoft, .name = "QLinearAdd", .run = run_qlinear_add, .prepare = prepare_qlinear_add},
    {kMicrosoft, "QLinearMul", 1, run_qlinear_mul},
    {kMicrosoft, "QLinearConcat", 1, run_qlinear_concat},
    {kMicrosoft, "QLinearSigmoid", 1, run_qlinear_sigmoid},
    {kMicrosoft, "QLinearLeakyRelu", 1, run_qlinear_leaky_relu},
    {.domain = kMicrosoft,
     .name = "QLinearGlobalAveragePool",
     .run = run_qlinear_global_average_pool,
     .prepare = prepare_qlinear_global_average_pool},
};

}  // namespace

std::span<const OpDef> microsoft_ops() { return kOps; }

}  // namespace bolide
