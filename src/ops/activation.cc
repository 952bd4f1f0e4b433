#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attribute.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/prepared_rows.h"
#include "ops/softmax.h"

namespace bolide {
namespace {

// An attribute of a function: a number of the type that the function is computed in.
struct Parameters {
  float alpha = 0, beta = 0;
};
Result<Parameters> parameters(const RunContext& c, float alpha, float beta = 0, std::string_view second = "beta") {
  Parameters p;
  BOLIDE_TRY(p.alpha, c.attributes().number("alpha", alpha));
  BOLIDE_TRY(p.beta, c.attributes().number(second, beta));
  return p;
}

template <class W>
W sigmoid(W x) {
  // The exponential is of a negative number: no overflow.
  const W e = std::exp(-std::abs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
template <class W>
W softplus(W x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

Result<> run_relu(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (is_float(x->dtype())) return map_floats(c, []<class W>(W v) { return v < 0 ? W(0) : v; });
  return dispatch(kSigned, x->dtype(), "input 0", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
    const auto from = x->as<T>();
    const auto to = y->mutate<T>();
    for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(from[i], T(0));
    return {};
  });
}
Result<> run_leaky_relu(RunContext& c) {
  BOLIDE_TRY(const Parameters p, parameters(c, 0.01f));
  return map_floats(c, [p]<class W>(W x) { return x < 0 ? static_cast<W>(p.alpha) * x : x; });
}
Result<> run_thresholded_relu(RunContext& c) {
  BOLIDE_TRY(const Parameters p, parameters(c, 1.0f));
  return map_floats(c, [p]<class W>(W x) { return x > static_cast<W>(p.alpha) ? x : W(0); });
}
Result<> run_elu(RunContext& c) {
  BOLIDE_TRY(const Parameters p, parameters(c, 1.0f));
  return map_floats(c, [p]<class W>(W x) { return x < 0 ? static_cast<W>(p.alpha) * std::expm1(x) : x; });
}
Result<> run_celu(RunContext& c) {
  BOLIDE_TRY(const Parameters p, parameters(c, 1.0f));
  return map_floats(c, [p]<class W>(W x) {
    const W alpha = static_cast<W>(p.alpha);
    return std::max(W(0), x) + std::min(W(0), alpha * std::expm1(x / alpha));
  });
}
Result<> run_selu(RunContext& c) {
  // Set 1 has its own, less exact, defaults.
  const bool first = c.version() < 6;
  BOLIDE_TRY(const Parameters p, parameters(c, first ? 1.6732f : 1.67326319217681884765625f,
                                            first ? 1.0507f : 1.05070102214813232421875f, "gamma"));
  return map_floats(
      c, [p]<class W>(W x) { return static_cast<W>(p.beta) * (x > 0 ? x : static_cast<W>(p.alpha) * std::expm1(x)); });
}
Result<> run_gelu(RunContext& c) {
  BOLIDE_TRY(const size_t how, choice_of(c, "approximate", "none", {"none", "tanh"}));
  if (how == 1)
    return map_floats(c, []<class W>(W x) {
      return W(0.5) * x * (1 + std::tanh(W(0.7978845608028654) * (x + W(0.044715) * x * x * x)));
    });
  return map_floats(c, []<class W>(W x) { return W(0.5) * x * std::erfc(x * W(-0.7071067811865476)); });
}
template <class W>
W hard_sigmoid(W x, W alpha, W beta) {
  const W y = alpha * x + beta;
  return y < 0 ? W(0) : y > 1 ? W(1) : y;
}
Result<> run_hard_sigmoid(RunContext& c) {
  BOLIDE_TRY(const Parameters p, parameters(c, 0.2f, 0.5f));
  return map_floats(c, [p]<class W>(W x) { return hard_sigmoid(x, static_cast<W>(p.alpha), static_cast<W>(p.beta)); });
}
Result<> run_hard_swish(RunContext& c) {
  return map_floats(c, []<class W>(W x) { return x * hard_sigmoid(x, W(1) / 6, W(0.5)); });
}
Result<> run_mish(RunContext& c) {
  return map_floats(c, []<class W>(W x) { return x * std::tanh(softplus(x)); });
}
Result<> run_softplus(RunContext& c) {
  return map_floats(c, []<class W>(W x) { return softplus(x); });
}
Result<> run_softsign(RunContext& c) {
  return map_floats(c, []<class W>(W x) { return x / (1 + std::abs(x)); });
}
Result<> run_sigmoid(RunContext& c) {
  return map_floats(c, []<class W>(W x) { return sigmoid(x); });
}
Result<> run_swish(RunContext& c) {
  BOLIDE_TRY(const Parameters p, parameters(c, 1.0f));
  return map_floats(c, [p]<class W>(W x) { return x * sigmoid(static_cast<W>(p.alpha) * x); });
}
Result<> run_shrink(RunContext& c) {
  BOLIDE_TRY(const float limit, c.attributes().number("lambd", 0.5f));
  BOLIDE_TRY(const float bias, c.attributes().number("bias", 0.0f));
  const auto shrink = [limit, bias]<class W>(W x) {
    return x < -static_cast<W>(limit)  ? x + static_cast<W>(bias)
           : x > static_cast<W>(limit) ? x - static_cast<W>(bias)
                                       : W(0);
  };
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (is_float(x->dtype())) return map_floats(c, shrink);
  return dispatch(kIntegers, x->dtype(), "input 0", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
    const auto from = x->as<T>();
    const auto to = y->mutate<T>();
    for (size_t i = 0; i < from.size(); ++i)
      to[i] = static_cast<T>(saturate_to_i64(shrink(static_cast<double>(from[i]))));
    return {};
  });
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "Relu", .run = run_relu, .prepare = prepare_unary<isa::kRowRelu>},
    {.domain = "", .name = "LeakyRelu", .run = run_leaky_relu, .prepare = prepare_leaky_relu},
    {.domain = "", .name = "ThresholdedRelu", .run = run_thresholded_relu},
    {.domain = "", .name = "Elu", .run = run_elu},
    {.domain = "", .name = "Celu", .run = run_celu},
    {.domain = "", .name = "Selu", .run = run_selu},
    {.domain = "", .name = "Gelu", .run = run_gelu, .prepare = prepare_gelu},
    {.domain = "", .name = "HardSigmoid", .run = run_hard_sigmoid, .prepare = prepare_hard_sigmoid},
    {.domain = "", .name = "HardSwish", .run = run_hard_swish, .prepare = prepare_unary<isa::kRowHardSwish>},
    {.domain = "", .name = "Mish", .run = run_mish},
    {.domain = "", .name = "Softplus", .run = run_softplus},
    {.domain = "", .name = "Softsign", .run = run_softsign},
    {.domain = "", .name = "Sigmoid", .run = run_sigmoid, .prepare = prepare_unary<isa::kRowSigmoid>},
    {.domain = "", .name = "Swish", .run = run_swish, .prepare = prepare_swish},
    {.domain = "", .name = "Shrink", .run = run_shrink},
};

}  // namespace

std::span<const OpDef> activation_ops() {
  static const std::vector<OpDef> kAll = [] {
    std::vector<OpDef> rows(std::begin(kRows), std::end(kRows));
    for (const std::span<const OpDef> part : {softmax_ops(), loss_ops()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return kAll;
}

}  // namespace bolide
