// Arithmetic of two and more tensors: Add ... Pow, Min, Max, Sum, Mean, Clip, PRelu.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

// Integers wrap: they are computed as unsigned ones of at least 32 bits.
template <class W>
using Ring = std::conditional_t<sizeof(W) <= 4, uint32_t, uint64_t>;

struct Add {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::integral<W>)
      return static_cast<W>(static_cast<Ring<W>>(a) + static_cast<Ring<W>>(b));
    else
      return a + b;
  }
};
struct Sub {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::integral<W>)
      return static_cast<W>(static_cast<Ring<W>>(a) - static_cast<Ring<W>>(b));
    else
      return a - b;
  }
};
struct Mul {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::integral<W>)
      return static_cast<W>(static_cast<Ring<W>>(a) * static_cast<Ring<W>>(b));
    else
      return a * b;
  }
};
// Integers: b is not 0, and the least of them over -1 is itself.
struct Div {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::signed_integral<W>)
      if (b == W(-1)) return Sub{}(W(0), a);
    return static_cast<W>(a / b);
  }
};
// The remainder with the sign of a.
struct Remainder {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::floating_point<W>) {
      return std::fmod(a, b);
    } else {
      if constexpr (std::signed_integral<W>)
        if (b == W(-1)) return 0;
      return static_cast<W>(a % b);
    }
  }
};
// The remainder with the sign of b.
struct Modulo {
  template <class W>
  W operator()(W a, W b) const {
    const W r = Remainder{}(a, b);
    return r != 0 && (r < 0) != (b < 0) ? Add{}(r, b) : r;
  }
};
// NaN wins, as in numpy.
struct Max {
  template <class W>
  W operator()(W a, W b) const {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <class W>
  W operator()(W a, W b) const {
    return a < b || a != a ? a : b;
  }
};

template <class F>
Result<> run_binary(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  BOLIDE_TRY(Tensor out, combine<void>(c, kNumbers, *in.a, in.b, F{}));
  c.set(0, std::move(out));
  return {};
}

Result<> no_zero_integers(const Tensor& divisors) {
  if (is_float(divisors.dtype())) return {};
  return dispatch(kIntegers, divisors.dtype(), "input 1", [&]<class T>() -> Result<> {
    const auto values = divisors.as<T>();
    const auto zero = std::find(values.begin(), values.end(), T(0));
    if (zero == values.end()) return {};
    return error(Code::kInvalid, fmt::format("input 1 divides by 0 at [{}] of its elements", zero - values.begin()));
  });
}

Result<> run_div(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  BOLIDE_TRY(no_zero_integers(in.b));
  BOLIDE_TRY(Tensor out, combine<void>(c, kNumbers, *in.a, in.b, Div{}));
  c.set(0, std::move(out));
  return {};
}

Result<> run_mod(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  BOLIDE_TRY(const int64_t fmod, c.attributes().integer("fmod", 0));
  if (fmod == 0 && is_float(in.a->dtype()))
    return error(Code::kInvalid, fmt::format("inputs of {} need the attribute fmod = 1", to_string(in.a->dtype())));
  BOLIDE_TRY(no_zero_integers(in.b));
  BOLIDE_TRY(Tensor out, fmod == 0 ? combine<void>(c, kIntegers, *in.a, in.b, Modulo{})
                                   : combine<void>(c, kNumbers, *in.a, in.b, Remainder{}));
  c.set(0, std::move(out));
  return {};
}

// By squaring, wrapping; 1 / a^-b is 0 but for a of 1 or -1 (and 0, of which nothing makes sense).
struct IntegerPower {
  template <class W>
  W operator()(W a, int64_t b) const {
    if (b < 0) {
      if (a == W(1)) return 1;
      if constexpr (std::is_signed_v<W>)
        if (a == W(-1)) return b % 2 == 0 ? W(1) : W(-1);
      return 0;
    }
    W result = 1;
    for (; b != 0; b >>= 1, a = Mul{}(a, a))
      if (b & 1) result = Mul{}(result, a);
    return result;
  }
};
struct FloatPower {
  template <class W>
  W operator()(W a, W b) const {
    return b == W(2) ? a * a : std::pow(a, b);
  }
};
struct MixedPower {
  template <class W>
  W operator()(W a, double b) const {
    return static_cast<W>(saturate_to_i64(std::pow(static_cast<double>(a), b)));
  }
};

Result<> run_pow(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  Tensor out;
  BOLIDE_TRY(dispatch(kNumbers, in.a->dtype(), "input 0", [&]<class T>() -> Result<> {
    if constexpr (std::integral<T>) {
      if (is_float(in.b.dtype())) {
        BOLIDE_TRY(const Tensor exponents, cast(in.b, DType::kF64, c.pool()));
        BOLIDE_TRY(out, (combine_as<T, double, T>(c, *in.a, exponents, MixedPower{})));
        return {};
      }
      BOLIDE_TRY(const Tensor exponents, cast(in.b, DType::kI64, c.pool()));
      BOLIDE_TRY(out, (combine_as<T, int64_t, T>(c, *in.a, exponents, IntegerPower{})));
      return {};
    } else {
      BOLIDE_TRY(const Tensor exponents, cast(in.b, kDTypeOf<Wide<T>>, c.pool()));
      BOLIDE_TRY(out, (combine_as<T, Wide<T>, T>(c, *in.a, exponents, FloatPower{})));
      return {};
    }
  }));
  c.set(0, std::move(out));
  return {};
}

// Inputs 0, 1, 2 ... combined from the left.
template <class F, class... T>
Result<Tensor> fold(RunContext& c, Types<T...> types) {
  BOLIDE_TRY(const Tensor* first, c.tensor(0));
  BOLIDE_TRY(dispatch(types, first->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  Tensor sum = *first;
  for (size_t i = 1; i < c.inputs(); ++i) {
    BOLIDE_TRY(const Tensor* next, c.tensor(i));
    BOLIDE_TRY(sum, combine<void>(c, types, sum, *next, F{}));
  }
  return sum;
}

template <class F>
Result<> run_fold(RunContext& c) {
  BOLIDE_TRY(Tensor out, fold<F>(c, kNumbers));
  c.set(0, std::move(out));
  return {};
}

Result<> run_mean(RunContext& c) {
  BOLIDE_TRY(const Tensor sum, fold<Add>(c, kFloats));
  const auto count = static_cast<float>(c.inputs());
  BOLIDE_TRY(const Tensor counts, cast(Tensor::scalar(DType::kF32, count), sum.dtype(), c.pool()));
  BOLIDE_TRY(Tensor out, combine<void>(c, kFloats, sum, counts, Div{}));
  c.set(0, std::move(out));
  return {};
}

// Bounds as inputs (since 11) or attributes; a lower one above the upper one gives the upper one.
Result<> run_clip(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  Tensor low, high;
  if (c.version() < 11) {
    BOLIDE_TRY(const float least, c.attributes().number("min", std::numeric_limits<float>::lowest()));
    BOLIDE_TRY(const float most, c.attributes().number("max", std::numeric_limits<float>::max()));
    if (c.attributes().has("min")) low = Tensor::scalar(DType::kF32, least);
    if (c.attributes().has("max")) high = Tensor::scalar(DType::kF32, most);
  } else {
    BOLIDE_TRY(const Tensor* least, c.tensor_if(1));
    BOLIDE_TRY(const Tensor* most, c.tensor_if(2));
    if (least != nullptr) low = *least;
    if (most != nullptr) high = *most;
  }
  BOLIDE_TRY(dispatch(kNumbers, x->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  Tensor out = *x;
  for (Tensor* bound : {&low, &high}) {
    if (!*bound) continue;
    if (bound->elements() != 1)
      return error(Code::kInvalid, fmt::format("bound {} has {} elements, expected one", bound == &low ? "min" : "max",
                                               bound->elements()));
    BOLIDE_TRY(*bound, cast(bound->reshaped({}), x->dtype(), c.pool()));
    BOLIDE_TRY(out, bound == &low ? combine<void>(c, kNumbers, out, *bound, Max{})
                                  : combine<void>(c, kNumbers, out, *bound, Min{}));
  }
  c.set(0, std::move(out));
  return {};
}

struct Rectify {
  template <class W>
  W operator()(W x, W slope) const {
    return x < W(0) ? Mul{}(x, slope) : x;
  }
};

// Slopes broadcast to x; before 7, and in some files since, a slope a channel is just [C].
Result<> run_prelu(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* given, c.tensor(1));
  Tensor slope = *given;
  const bool fits = slope.rank() == 1 && x->rank() >= 2 && slope.dim(0) == x->dim(1);
  if (c.version() < 7 && fits) {
    Shape shape = slope.shape();
    while (shape.rank < x->rank() - 1) shape.dims[static_cast<size_t>(shape.rank++)] = 1;
    slope = slope.reshaped(shape);
  }
  BOLIDE_TRY(const Shape wide, broadcast(x->shape(), slope.shape()));
  if (wide != x->shape())
    return error(Code::kInvalid,
                 fmt::format("a slope of shape {} for x of shape {}", to_string(slope.shape()), to_string(x->shape())));
  BOLIDE_TRY(Tensor out, combine<void>(c, kNumbers, *x, slope, Rectify{}));
  c.set(0, std::move(out));
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "Add", .run = run_binary<Add>, .prepare = prepare_binary<isa::kRowAdd>},
    {.domain = "", .name = "Sub", .run = run_binary<Sub>, .prepare = prepare_binary<isa::kRowSubtract>},
    {.domain = "", .name = "Mul", .run = run_binary<Mul>, .prepare = prepare_binary<isa::kRowMultiply>},
    {.domain = "", .name = "Div", .run = run_div, .prepare = prepare_binary<isa::kRowDivide>},
    {.domain = "", .name = "Mod", .run = run_mod},
    {.domain = "", .name = "Pow", .run = run_pow},
    {.domain = "", .name = "Max", .run = run_fold<Max>, .prepare = prepare_binary<isa::kRowMax>},
    {.domain = "", .name = "Min", .run = run_fold<Min>, .prepare = prepare_binary<isa::kRowMin>},
    {.domain = "", .name = "Sum", .run = run_fold<Add>},
    {.domain = "", .name = "Mean", .run = run_mean},
    {.domain = "", .name = "Clip", .run = run_clip, .prepare = prepare_clip},
    {.domain = "", .name = "PRelu", .run = run_prelu},
};

}  // namespace

std::span<const OpDef> arithmetic_ops() { return kRows; }

}  // namespace bolide
