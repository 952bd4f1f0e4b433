// Elementwise ops on GPUs, with numpy's broadcasting.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/device/device_op.h"
#include "ops/moves.h"

namespace bolide {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";

bool is_plain_integer(DType dtype) {
  switch (dtype) {
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8:
    case DType::kBool: return true;
    default: return false;
  }
}

// The tensors that kernels read: their elements on the device.
Result<bool> run_job(DeviceContext& c, const Element& element, std::span<const DeviceTensor* const> inputs,
                     DType declared) {
  Shape shape = inputs[0]->shape;
  for (const DeviceTensor* input : inputs.subspan(1)) {
    BOLIDE_TRY(shape, broadcast(shape, input->shape));
  }
  if (shape.elements() >= int64_t{1} << 31) return false;
  const bool last = std::any_of(inputs.begin(), inputs.end(), [&](const DeviceTensor* input) {
    return input->channels_last && input->shape == shape;
  });
  BOLIDE_TRY(const DeviceTensor out, c.make(0, declared, shape, last));
  if (shape.elements() == 0) return true;
  ElementsJob job;
  job.element = element;
  if (!fill_elements(job, shape, inputs, out)) return false;
  BOLIDE_TRY(launch_elements(c.stream(), job));
  return true;
}

Result<bool> run_unary(DeviceContext& c) {
  const auto element = element_of("", c.name(), c.attributes(), c.version());
  if (!element) return false;
  const bool has_integers =
      element->op == ElementOp::kNeg || element->op == ElementOp::kAbs || element->op == ElementOp::kSign;
  if (!c.is_half_or_single(0) && !(has_integers && is_plain_integer(c.dtype(0)) && c.dtype(0) != DType::kBool))
    return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  const DeviceTensor* in = &x;
  return run_job(c, *element, {&in, 1}, c.dtype(0));
}
Result<bool> run_microsoft_unary(DeviceContext& c) {
  const auto element = element_of(kMicrosoft, c.name(), c.attributes(), c.version());
  if (!element || !c.is_half_or_single(0)) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  const DeviceTensor* in = &x;
  return run_job(c, *element, {&in, 1}, c.dtype(0));
}
Result<bool> run_test(DeviceContext& c, const Element& element) {
  if (!c.is_half_or_single(0)) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  const DeviceTensor* in = &x;
  return run_job(c, element, {&in, 1}, DType::kBool);
}
Result<bool> run_is_nan(DeviceContext& c) { return run_test(c, {ElementOp::kIsNan}); }
Result<bool> run_is_inf(DeviceContext& c) {
  BOLIDE_TRY(const int64_t negative, c.attributes().integer("detect_negative", 1));
  BOLIDE_TRY(const int64_t positive, c.attributes().integer("detect_positive", 1));
  return run_test(c, {ElementOp::kIsInf, negative != 0 ? 1.f : 0.f, positive != 0 ? 1.f : 0.f});
}

Result<bool> run_not(DeviceContext& c) {
  if (c.dtype(0) != DType::kBool) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  const DeviceTensor* in = &x;
  return run_job(c, {ElementOp::kNot}, {&in, 1}, DType::kBool);
}

Result<bool> run_clip(DeviceContext& c) {
  if (!c.is_half_or_single(0)) return false;
  Element element{ElementOp::kClip, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  if (c.version() < 11) {
    BOLIDE_TRY(element.p, c.attributes().number("min", element.p));
    BOLIDE_TRY(element.q, c.attributes().number("max", element.q));
  } else {
    for (const size_t i : {1, 2}) {
      if (!c.has(i)) continue;
      const Tensor* bound = c.known(i);
      if (bound == nullptr || bound->elements() != 1) return false;
      BOLIDE_TRY(const auto values, doubles_of(*bound));
      (i == 1 ? element.p : element.q) = static_cast<float>(values[0]);
    }
  }
  if (!(element.p <= element.q)) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  const DeviceTensor* in = &x;
  return run_job(c, element, {&in, 1}, c.dtype(0));
}

// Two or more inputs, one after the other.
Result<bool> run_binary_as(DeviceContext& c, ElementOp op, bool integers, bool is_bool) {
  if (c.inputs() < 1 || c.version() < 7) return false;
  for (size_t i = 0; i < c.inputs(); ++i)
    if (!c.has(i) || c.dtype(i) != c.dtype(0)) return false;
  if (!c.is_half_or_single(0) && !(integers && is_plain_integer(c.dtype(0)))) return false;
  const DType declared = is_bool ? DType::kBool : c.dtype(0);
  BOLIDE_TRY(DeviceTensor a, c.any(0));
  if (c.inputs() == 1) {
    c.set(0, a);
    return true;
  }
  for (size_t i = 1; i < c.inputs(); ++i) {
    BOLIDE_TRY(const DeviceTensor b, c.any(i));
    const DeviceTensor* in[] = {&a, &b};
    BOLIDE_TRY(const bool ran, run_job(c, {op}, in, declared));
    if (!ran) return false;
    a = c.made()[0];
  }
  return true;
}
template <ElementOp op, bool integers, bool is_bool = false>
Result<bool> run_binary(DeviceContext& c) {
  return run_binary_as(c, op, integers, is_bool);
}

Result<bool> run_mean(DeviceContext& c) {
  BOLIDE_TRY(const bool ran, run_binary_as(c, ElementOp::kAdd, false, false));
  if (!ran || c.inputs() == 1) return ran;
  const DeviceTensor sum = c.made()[0];
  const DeviceTensor* in = &sum;
  return run_job(c, {ElementOp::kScale, 1 / static_cast<float>(c.inputs()), 0}, {&in, 1}, c.dtype(0));
}

// That of integers has its divisor's sign, and an error of its own: the CPU's.
Result<bool> run_mod(DeviceContext& c) {
  BOLIDE_TRY(const int64_t is_c, c.attributes().integer("fmod", 0));
  if (is_c == 0) return false;
  return run_binary_as(c, ElementOp::kFmod, false, false);
}

// Exponents are often constants: squares and roots.
Result<bool> run_pow(DeviceContext& c) {
  if (!c.is_half_or_single(0) || !c.is_half_or_single(1) || c.version() < 7) return false;
  BOLIDE_TRY(const DeviceTensor a, c.any(0));
  if (const Tensor* by = c.known(1); by != nullptr && by->elements() == 1 && by->rank() <= c.shape(0).rank) {
    BOLIDE_TRY(const auto exponent, doubles_of(*by));
    const DeviceTensor* twice[] = {&a, &a};
    if (exponent[0] == 2) return run_job(c, {ElementOp::kMul}, twice, c.dtype(0));
    if (exponent[0] == 0.5) return run_job(c, {ElementOp::kSqrt}, {twice, 1}, c.dtype(0));
  }
  BOLIDE_TRY(const DeviceTensor b, c.any(1));
  const DeviceTensor* in[] = {&a, &b};
  return run_job(c, {ElementOp::kPow}, in, c.dtype(0));
}

Result<bool> run_prelu(DeviceContext& c) {
  if (!c.is_half_or_single(0) || c.dtype(1) != c.dtype(0) || c.version() < 7) return false;
  BOLIDE_TRY(const Shape shape, broadcast(c.shape(0), c.shape(1)));
  if (shape != c.shape(0)) return false;
  return run_binary_as(c, ElementOp::kPrelu, false, false);
}

Result<bool> run_bias_gelu(DeviceContext& c) {
  if (!c.is_half_or_single(0) || !c.has(1) || c.dtype(1) != c.dtype(0)) return false;
  BOLIDE_TRY(const Shape shape, broadcast(c.shape(0), c.shape(1)));
  if (shape != c.shape(0)) return false;
  BOLIDE_TRY(const DeviceTensor a, c.any(0));
  BOLIDE_TRY(const DeviceTensor b, c.any(1));
  const DeviceTensor* in[] = {&a, &b};
  return run_job(c, {ElementOp::kBiasGelu}, in, c.dtype(0));
}

Result<bool> run_where(DeviceContext& c) {
  if (c.dtype(0) != DType::kBool || c.dtype(1) != c.dtype(2)) return false;
  if (!c.is_half_or_single(1) && !is_plain_integer(c.dtype(1))) return false;
  BOLIDE_TRY(const DeviceTensor a, c.any(0));
  BOLIDE_TRY(const DeviceTensor b, c.any(1));
  BOLIDE_TRY(const DeviceTensor d, c.any(2));
  const DeviceTensor* in[] = {&a, &b, &d};
  return run_job(c, {ElementOp::kWhere}, in, c.dtype(1));
}

// Floats to integers have rules of their own for what does not fit: the CPU's.
Result<bool> cast_to(DeviceContext& c, DType to) {
  const bool from_float = c.is_half_or_single(0),
             to_float = to == DType::kF32 || to == DType::kF16 || to == DType::kBF16;
  if (!(from_float && (to_float || to == DType::kBool)) &&
      !(is_plain_integer(c.dtype(0)) && (to_float || is_plain_integer(to))))
    return false;
  // f16 of a model whose f32 are kept as bf16 would lose nothing, and the other way round all: both stay as declared.
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  const DeviceTensor* in = &x;
  return run_job(c, {ElementOp::kCopy}, {&in, 1}, to);
}
Result<bool> run_cast(DeviceContext& c) {
  BOLIDE_TRY(const int64_t code, c.attributes().integer("to", 0));
  BOLIDE_TRY(const DType to, dtype_of_code(code));
  return cast_to(c, to);
}
Result<bool> run_cast_like(DeviceContext& c) { return c.has(1) ? cast_to(c, c.dtype(1)) : Result<bool>(false); }

using enum ElementOp;
constexpr DeviceOp kRows[] = {
    {"", "Relu", run_unary},
    {"", "Sigmoid", run_unary},
    {"", "Tanh", run_unary},
    {"", "Exp", run_unary},
    {"", "Log", run_unary},
    {"", "Sqrt", run_unary},
    {"", "Reciprocal", run_unary},
    {"", "Neg", run_unary},
    {"", "Abs", run_unary},
    {"", "Erf", run_unary},
    {"", "Gelu", run_unary},
    {"", "Swish", run_unary},
    {"", "HardSigmoid", run_unary},
    {"", "HardSwish", run_unary},
    {"", "LeakyRelu", run_unary},
    {"", "Elu", run_unary},
    {"", "Softplus", run_unary},
    {"", "Floor", run_unary},
    {"", "Ceil", run_unary},
    {"", "Round", run_unary},
    {"", "Sign", run_unary},
    {"", "Sin", run_unary},
    {"", "Cos", run_unary},
    {"", "Tan", run_unary},
    {"", "Asin", run_unary},
    {"", "Acos", run_unary},
    {"", "Atan", run_unary},
    {"", "Sinh", run_unary},
    {"", "Cosh", run_unary},
    {"", "Asinh", run_unary},
    {"", "Acosh", run_unary},
    {"", "Atanh", run_unary},
    {"", "Selu", run_unary},
    {"", "Celu", run_unary},
    {"", "ThresholdedRelu", run_unary},
    {"", "Softsign", run_unary},
    {"", "Mish", run_unary},
    {"", "Shrink", run_unary},
    {"", "IsNaN", run_is_nan},
    {"", "IsInf", run_is_inf},
    {"", "Clip", run_clip},
    {"", "Not", run_not},
    {"", "Add", run_binary<kAdd, true>},
    {"", "Sub", run_binary<kSub, true>},
    {"", "Mul", run_binary<kMul, true>},
    {"", "Div", run_binary<kDiv, false>},
    {"", "Max", run_binary<kMax, true>},
    {"", "Min", run_binary<kMin, true>},
    {"", "Sum", run_binary<kAdd, false>},
    {"", "Mean", run_mean},
    {"", "Mod", run_mod},
    {"", "Pow", run_pow},
    {"", "PRelu", run_prelu},
    {"", "Equal", run_binary<kEqual, true, true>},
    {"", "Less", run_binary<kLess, true, true>},
    {"", "LessOrEqual", run_binary<kLessEqual, true, true>},
    {"", "Greater", run_binary<kGreater, true, true>},
    {"", "GreaterOrEqual", run_binary<kGreaterEqual, true, true>},
    {"", "And", run_binary<kAnd, true, true>},
    {"", "Or", run_binary<kOr, true, true>},
    {"", "Xor", run_binary<kXor, true, true>},
    {"", "Where", run_where},
    {"", "Cast", run_cast},
    {"", "CastLike", run_cast_like},
    {kMicrosoft, "Gelu", run_microsoft_unary},
    {kMicrosoft, "QuickGelu", run_microsoft_unary},
    {kMicrosoft, "BiasGelu", run_bias_gelu},
};

}  // namespace

std::optional<Element> element_of(std::string_view domain, std::string_view name, const Attributes& attributes,
                                  int64_t version) {
  const auto number = [&](std::string_view key, float otherwise) {
    return attributes.number(key, otherwise).value_or(otherwise);
  };
  if (domain == kMicrosoft) {
    if (name == "Gelu") return Element{kGelu};
    if (name == "QuickGelu") return Element{kSilu, number("alpha", 1.702f)};
    return std::nullopt;
  }
  if (!domain.empty()) return std::nullopt;
  constexpr std::pair<std::string_view, ElementOp> kPlain[] = {{"Relu", kRelu},         {"Sigmoid", kSigmoid},
                                                               {"Tanh", kTanh},         {"Exp", kExp},
                                                               {"Log", kLog},           {"Sqrt", kSqrt},
                                                               {"Neg", kNeg},           {"Reciprocal", kReciprocal},
                                                               {"Abs", kAbs},           {"Erf", kErf},
                                                               {"Softplus", kSoftplus}, {"Floor", kFloor},
                                                               {"Ceil", kCeil},         {"Round", kRound},
                                                               {"Sign", kSign},         {"Sin", kSin},
                                                               {"Cos", kCos},           {"HardSwish", kHardSwish},
                                                               {"Tan", kTan},           {"Asin", kAsin},
                                                               {"Acos", kAcos},         {"Atan", kAtan},
                                                               {"Sinh", kSinh},         {"Cosh", kCosh},
                                                               {"Asinh", kAsinh},       {"Acosh", kAcosh},
                                                               {"Atanh", kAtanh},       {"Softsign", kSoftsign},
                                                               {"Mish", kMish}};
  for (const auto& [known, op] : kPlain)
    if (known == name) return Element{op};
  if (name == "Gelu")
    return Element{attributes.text("approximate", "none").value_or("none") == "tanh" ? kGeluTanh : kGelu};
  if (name == "Swish") return Element{kSilu, number("alpha", 1)};
  if (name == "HardSigmoid") return Element{kHardSigmoid, number("alpha", 0.2f), number("beta", 0.5f)};
  if (name == "LeakyRelu") return Element{kLeakyRelu, number("alpha", 0.01f)};
  if (name == "Elu") return Element{kElu, number("alpha", 1)};
  if (name == "Celu") return Element{kCelu, number("alpha", 1)};
  if (name == "ThresholdedRelu") return Element{kThresholdedRelu, number("alpha", 1)};
  if (name == "Shrink") return Element{kShrink, number("lambd", 0.5f), number("bias", 0)};
  if (name == "Selu" && version >= 6)
    return Element{kSelu, number("alpha", 1.67326319217681884765625f), number("gamma", 1.05070102214813232421875f)};
  return std::nullopt;
}

std::span<const DeviceOp> device_element_ops() { return kRows; }

}  // namespace bolide
