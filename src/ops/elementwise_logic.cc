// Comparisons, logic, bits, Where.
#include <type_traits>

#include "ops/attribute.h"
#include "ops/elementwise.h"

namespace bolide {
namespace {

struct Equal {
  template <class W>
  bool operator()(W a, W b) const {
    return a == b;
  }
};
struct Less {
  template <class W>
  bool operator()(W a, W b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <class W>
  bool operator()(W a, W b) const {
    return a <= b;
  }
};
struct Greater {
  template <class W>
  bool operator()(W a, W b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class W>
  bool operator()(W a, W b) const {
    return a >= b;
  }
};
struct And {
  bool operator()(int32_t a, int32_t b) const { return a != 0 && b != 0; }
};
struct Or {
  bool operator()(int32_t a, int32_t b) const { return a != 0 || b != 0; }
};
struct Xor {
  bool operator()(int32_t a, int32_t b) const { return (a != 0) != (b != 0); }
};

template <class F>
Result<> run_compare(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  BOLIDE_TRY(Tensor out, combine<Bool>(c, kNumbers, *in.a, in.b, F{}));
  c.set(0, std::move(out));
  return {};
}

template <class F>
Result<> run_logic(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  BOLIDE_TRY(Tensor out, combine<Bool>(c, Types<Bool>{}, *in.a, in.b, F{}));
  c.set(0, std::move(out));
  return {};
}

Result<> equal_texts(RunContext& c, const Tensor& a, const Tensor& b) {
  if (!b.is_string())
    return error(Code::kInvalid, fmt::format("inputs of string and {}: expected one type", to_string(b.dtype())));
  BOLIDE_TRY(const Shape shape, broadcast(a.shape(), b.shape()));
  BOLIDE_TRY(Tensor * out, c.make(0, DType::kBool, shape));
  const auto x = a.as<std::string>(), y = b.as<std::string>();
  const auto to = out->mutate<uint8_t>();
  if (to.empty()) return {};
  for_each_offset(shape, broadcast_strides(a.shape(), shape), broadcast_strides(b.shape(), shape),
                  [&](int64_t i, int64_t from_x, int64_t from_y) {
                    to[static_cast<size_t>(i)] = x[static_cast<size_t>(from_x)] == y[static_cast<size_t>(from_y)];
                  });
  return {};
}

Result<> run_equal(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  if (in.a->is_string()) return equal_texts(c, *in.a, in.b);
  if (in.a->dtype() != DType::kBool) return run_compare<Equal>(c);
  BOLIDE_TRY(Tensor out,
             combine<Bool>(c, Types<Bool>{}, *in.a, in.b, [](int32_t a, int32_t b) { return (a != 0) == (b != 0); }));
  c.set(0, std::move(out));
  return {};
}

struct BitAnd {
  template <class W>
  W operator()(W a, W b) const {
    return static_cast<W>(a & b);
  }
};
struct BitOr {
  template <class W>
  W operator()(W a, W b) const {
    return static_cast<W>(a | b);
  }
};
struct BitXor {
  template <class W>
  W operator()(W a, W b) const {
    return static_cast<W>(a ^ b);
  }
};
// What the bits shifted in leave behind, if a shift takes all of them.
struct ShiftLeft {
  template <class W>
  W operator()(W a, W b) const {
    using U = std::make_unsigned_t<W>;
    return static_cast<U>(b) >= sizeof(W) * 8 ? W(0) : static_cast<W>(static_cast<uint64_t>(a) << static_cast<U>(b));
  }
};
struct ShiftRight {
  template <class W>
  W operator()(W a, W b) const {
    using U = std::make_unsigned_t<W>;
    if (static_cast<U>(b) >= sizeof(W) * 8) return a < W(0) ? static_cast<W>(-1) : W(0);
    return static_cast<W>(a >> static_cast<U>(b));
  }
};

template <class F>
Result<> run_bits(RunContext& c) {
  BOLIDE_TRY(const Operands in, operands_of(c));
  BOLIDE_TRY(Tensor out, combine<void>(c, kIntegers, *in.a, in.b, F{}));
  c.set(0, std::move(out));
  return {};
}

Result<> run_shift(RunContext& c) {
  BOLIDE_TRY(const size_t right, choice_of(c, "direction", "", {"LEFT", "RIGHT"}));
  return right == 0 ? run_bits<ShiftLeft>(c) : run_bits<ShiftRight>(c);
}

Result<> run_not(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->dtype() != DType::kBool)
    return error(Code::kInvalid, fmt::format("input 0 is of {}, expected bool", to_string(x->dtype())));
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kBool, x->shape()));
  const auto from = x->as<uint8_t>();
  const auto to = y->mutate<uint8_t>();
  for (size_t i = 0; i < from.size(); ++i) to[i] = from[i] == 0;
  return {};
}

Result<> run_bit_not(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  return dispatch(kIntegers, x->dtype(), "input 0", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
    const auto from = x->as<T>();
    const auto to = y->mutate<T>();
    for (size_t i = 0; i < from.size(); ++i) to[i] = static_cast<T>(~from[i]);
    return {};
  });
}

Result<> run_where(RunContext& c) {
  BOLIDE_TRY(const Tensor* condition, c.tensor(0));
  BOLIDE_TRY(const Tensor* yes, c.tensor(1));
  BOLIDE_TRY(const Tensor* no, c.tensor(2));
  if (condition->dtype() != DType::kBool)
    return error(Code::kInvalid, fmt::format("input 0 is of {}, expected bool", to_string(condition->dtype())));
  if (yes->dtype() != no->dtype())
    return error(Code::kInvalid, fmt::format("inputs 1 and 2 are of {} and {}: expected one type",
                                             to_string(yes->dtype()), to_string(no->dtype())));
  BOLIDE_TRY(const Shape values, broadcast(yes->shape(), no->shape()));
  BOLIDE_TRY(const Shape shape, broadcast(condition->shape(), values));
  BOLIDE_TRY(Tensor * out, c.make(0, yes->dtype(), shape));
  const Walk walk = walk_of(shape, {&condition->shape(), &yes->shape(), &no->shape()});
  return dispatch_moves(yes->dtype(), [&]<class T>() -> Result<> {
    const uint8_t* const flags = condition->as<uint8_t>().data();
    const T* const from_yes = yes->as<T>().data();
    const T* const from_no = no->as<T>().data();
    T* const to = out->mutate<T>().data();
    for_each_piece(walk, c.workers(), [&](const Piece& p) {
      for (int64_t i = 0; i < p.n; ++i)
        to[p.out + i] =
            flags[p.in[0] + i * p.step[0]] != 0 ? from_yes[p.in[1] + i * p.step[1]] : from_no[p.in[2] + i * p.step[2]];
    });
    return {};
  });
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "Equal", .run = run_equal},
    {.domain = "", .name = "Less", .run = run_compare<Less>},
    {.domain = "", .name = "LessOrEqual", .run = run_compare<LessOrEqual>},
    {.domain = "", .name = "Greater", .run = run_compare<Greater>},
    {.domain = "", .name = "GreaterOrEqual", .run = run_compare<GreaterOrEqual>},
    {.domain = "", .name = "And", .run = run_logic<And>},
    {.domain = "", .name = "Or", .run = run_logic<Or>},
    {.domain = "", .name = "Xor", .run = run_logic<Xor>},
    {.domain = "", .name = "Not", .run = run_not},
    {.domain = "", .name = "BitwiseAnd", .run = run_bits<BitAnd>},
    {.domain = "", .name = "BitwiseOr", .run = run_bits<BitOr>},
    {.domain = "", .name = "BitwiseXor", .run = run_bits<BitXor>},
    {.domain = "", .name = "BitwiseNot", .run = run_bit_not},
    {.domain = "", .name = "BitShift", .run = run_shift},
    {.domain = "", .name = "Where", .run = run_where},
};

}  // namespace

std::span<const OpDef> logic_ops() { return kRows; }

}  // namespace bolide
