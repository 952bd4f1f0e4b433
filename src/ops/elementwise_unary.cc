// Functions of one number.
#include <cmath>
#include <type_traits>

#include "ops/elementwise.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

// y[i] = f(x[i]) for all numbers; f takes and gives the wide type of the elements.
template <class... T, class F>
Result<> map_numbers(RunContext& c, Types<T...> types, F f) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  return dispatch(types, x->dtype(), "input 0", [&]<class X>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
    const auto from = x->as<X>();
    const auto to = y->mutate<X>();
    for (size_t i = 0; i < from.size(); ++i) to[i] = narrow<X>(f(widen(from[i])));
    return {};
  });
}

// 0 - x of integers, wrapping.
template <class W>
W negated(W x) {
  if constexpr (std::integral<W>)
    return static_cast<W>(uint64_t{0} - static_cast<uint64_t>(x));
  else
    return -x;
}

Result<> run_abs(RunContext& c) {
  return map_numbers(c, kNumbers, []<class W>(W x) -> W {
    if constexpr (std::floating_point<W>)
      return std::abs(x);
    else
      return x < W(0) ? negated(x) : x;
  });
}
Result<> run_neg(RunContext& c) {
  return map_numbers(c, kFloats + kSigned, []<class W>(W x) -> W { return negated(x); });
}
Result<> run_sign(RunContext& c) {
  return map_numbers(c, kNumbers, []<class W>(W x) -> W {
    if constexpr (std::floating_point<W>)
      if (std::isnan(x)) return x;
    return static_cast<W>((x > W(0)) - (x < W(0)));
  });
}

// Flags of a float tensor's elements.
template <class F>
Result<> map_flags(RunContext& c, F f) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  return dispatch(kFloats + Types<F8E4M3, F8E5M2>{}, x->dtype(), "input 0", [&]<class X>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kBool, x->shape()));
    const auto from = x->as<X>();
    const auto to = y->mutate<uint8_t>();
    for (size_t i = 0; i < from.size(); ++i) to[i] = f(widen(from[i])) ? 1 : 0;
    return {};
  });
}
Result<> run_is_nan(RunContext& c) {
  return map_flags(c, [](auto x) { return std::isnan(x); });
}
Result<> run_is_inf(RunContext& c) {
  BOLIDE_TRY(const int64_t negative, c.attributes().integer("detect_negative", 1));
  BOLIDE_TRY(const int64_t positive, c.attributes().integer("detect_positive", 1));
  return map_flags(c, [&](auto x) { return std::isinf(x) && (x > 0 ? positive : negative) != 0; });
}

// Rows of floats, a function each. std's functions are overloaded for f32 and f64.
#define BOLIDE_UNARY(name, expression)                       \
  Result<> name(RunContext& c) {                             \
    return map_floats(c, [](auto x) { return expression; }); \
  }
BOLIDE_UNARY(run_acos, std::acos(x))
BOLIDE_UNARY(run_acosh, std::acosh(x))
BOLIDE_UNARY(run_asin, std::asin(x))
BOLIDE_UNARY(run_asinh, std::asinh(x))
BOLIDE_UNARY(run_atan, std::atan(x))
BOLIDE_UNARY(run_atanh, std::atanh(x))
BOLIDE_UNARY(run_ceil, std::ceil(x))
BOLIDE_UNARY(run_cos, std::cos(x))
BOLIDE_UNARY(run_cosh, std::cosh(x))
BOLIDE_UNARY(run_erf, std::erf(x))
BOLIDE_UNARY(run_exp, std::exp(x))
BOLIDE_UNARY(run_floor, std::floor(x))
BOLIDE_UNARY(run_log, std::log(x))
BOLIDE_UNARY(run_reciprocal, 1 / x)
BOLIDE_UNARY(run_round, std::nearbyint(x))  // ties to even
BOLIDE_UNARY(run_sin, std::sin(x))
BOLIDE_UNARY(run_sinh, std::sinh(x))
BOLIDE_UNARY(run_sqrt, std::sqrt(x))
BOLIDE_UNARY(run_tan, std::tan(x))
BOLIDE_UNARY(run_tanh, std::tanh(x))
#undef BOLIDE_UNARY

constexpr OpDef kRows[] = {
    {.domain = "", .name = "Abs", .run = run_abs, .prepare = prepare_unary<isa::kRowAbs>},
    {.domain = "", .name = "Neg", .run = run_neg, .prepare = prepare_unary<isa::kRowNegate>},
    {.domain = "", .name = "Sign", .run = run_sign},
    {.domain = "", .name = "IsNaN", .run = run_is_nan},
    {.domain = "", .name = "IsInf", .run = run_is_inf},
    {.domain = "", .name = "Acos", .run = run_acos},
    {.domain = "", .name = "Acosh", .run = run_acosh},
    {.domain = "", .name = "Asin", .run = run_asin},
    {.domain = "", .name = "Asinh", .run = run_asinh},
    {.domain = "", .name = "Atan", .run = run_atan},
    {.domain = "", .name = "Atanh", .run = run_atanh},
    {.domain = "", .name = "Ceil", .run = run_ceil},
    {.domain = "", .name = "Cos", .run = run_cos},
    {.domain = "", .name = "Cosh", .run = run_cosh},
    {.domain = "", .name = "Erf", .run = run_erf, .prepare = prepare_unary<isa::kRowErf>},
    {.domain = "", .name = "Exp", .run = run_exp, .prepare = prepare_unary<isa::kRowExp>},
    {.domain = "", .name = "Floor", .run = run_floor},
    {.domain = "", .name = "Log", .run = run_log},
    {.domain = "", .name = "Reciprocal", .run = run_reciprocal, .prepare = prepare_unary<isa::kRowReciprocal>},
    {.domain = "", .name = "Round", .run = run_round},
    {.domain = "", .name = "Sin", .run = run_sin},
    {.domain = "", .name = "Sinh", .run = run_sinh},
    {.domain = "", .name = "Sqrt", .run = run_sqrt, .prepare = prepare_unary<isa::kRowSqrt>},
    {.domain = "", .name = "Tan", .run = run_tan},
    {.domain = "", .name = "Tanh", .run = run_tanh, .prepare = prepare_unary<isa::kRowTanh>},
};

}  // namespace

std::span<const OpDef> unary_ops() { return kRows; }

}  // namespace bolide
