// The loops that elementwise ops share: broadcasting as rows, pieces for the workers, floats through f32.
#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "base/function_ref.h"
#include "ir/op_def.h"
#include "ops/number.h"
#include "ops/shape.h"

namespace bolide {

inline constexpr size_t kWalkInputs = 3;

// Up to three tensors read as if they all had the shape that they broadcast to. Dims are merged where every one of them
// runs on, so the last is as long as can be: a row, along which a tensor steps by one element or by none.
struct Walk {
  Shape shape;  // merged: rank >= 1
  std::array<Strides, kWalkInputs> strides{};
};
Walk walk_of(const Shape& wide, std::initializer_list<const Shape*> inputs);

// A piece of a row: elements [out, out + n) of the output; input k begins at element in[k] and steps by step[k].
struct Piece {
  int64_t out = 0;
  int64_t n = 0;
  std::array<int64_t, kWalkInputs> in{};
  std::array<int64_t, kWalkInputs> step{};
};
// Calls f for pieces that cover elements [begin, end) of the output, in their order.
void for_each_piece(const Walk& walk, int64_t begin, int64_t end, FunctionRef<void(const Piece&)> f);
// The same for all elements, in any order, on several threads if there are many.
void for_each_piece(const Walk& walk, Workers& workers, FunctionRef<void(const Piece&)> f);

// f(begin, end) for ranges that cover [0, n), on several threads if n is large.
void for_each_range(int64_t n, Workers& workers, FunctionRef<void(int64_t, int64_t)> f);

// Output 0 from input 0, a float tensor of any shape, row by row; f16 and bf16 pass as f32.
Result<> map_float_rows(RunContext& c, FunctionRef<void(const float*, float*, int64_t)> f32,
                        FunctionRef<void(const double*, double*, int64_t)> f64);
// The same, element by element.
template <class F>
Result<> map_floats(RunContext& c, F f) {
  const auto rows = [&f]<class T>(const T* x, T* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(x[i]));
  };
  return map_float_rows(
      c, [&](const float* x, float* y, int64_t n) { rows(x, y, n); },
      [&](const double* x, double* y, int64_t n) { rows(x, y, n); });
}

// Computes one piece from the first elements of a, b and the output.
using CombineRows = FunctionRef<void(const std::byte* a, const std::byte* b, std::byte* out, const Piece& piece)>;
// A tensor of type `result` over the shape that a and b broadcast to.
Result<Tensor> combine_rows(RunContext& c, const Tensor& a, const Tensor& b, DType result, CombineRows rows);

template <class A, class B, class R, class F>
void combine_piece(const F& f, const std::byte* a, const std::byte* b, std::byte* out, const Piece& p) {
  const A* const x = reinterpret_cast<const A*>(a) + p.in[0];
  const B* const y = reinterpret_cast<const B*>(b) + p.in[1];
  R* const z = reinterpret_cast<R*>(out) + p.out;
  const int64_t sx = p.step[0], sy = p.step[1];
  const auto one = [&f](A v, B w) { return narrow<R>(f(widen(v), widen(w))); };
  if constexpr (std::same_as<A, float>) {  // the one worth three loops
    if (sx == 1 && sy == 1) {
      for (int64_t i = 0; i < p.n; ++i) z[i] = one(x[i], y[i]);
      return;
    }
    if (sx == 1) {
      const B only = y[0];
      for (int64_t i = 0; i < p.n; ++i) z[i] = one(x[i], only);
      return;
    }
  }
  for (int64_t i = 0; i < p.n; ++i) z[i] = one(x[i * sx], y[i * sy]);
}

// out[i] = f(a[i], b[i]) over the shape that a and b broadcast to. Elements are of A, B and R as tensors hold them; f
// takes and gives their wide types. a is of A and b of B: the caller has checked.
template <class A, class B, class R, class F>
Result<Tensor> combine_as(RunContext& c, const Tensor& a, const Tensor& b, F f) {
  return combine_rows(c, a, b, kDTypeOf<R>,
                      [&f](const std::byte* x, const std::byte* y, std::byte* z, const Piece& piece) {
                        combine_piece<A, B, R>(f, x, y, z, piece);
                      });
}

// The same for tensors of one type out of a list. R: the type of the result's elements, void for the inputs' own. Per
// type there is one function of loops alone: sanitizers take minutes over more.
template <class R, class... T, class F>
Result<Tensor> combine(RunContext& c, Types<T...> types, const Tensor& a, const Tensor& b, F f) {
  if (a.dtype() != b.dtype())
    return error(Code::kInvalid,
                 fmt::format("inputs of {} and {}: expected one type", to_string(a.dtype()), to_string(b.dtype())));
  void (*piece_of)(const F&, const std::byte*, const std::byte*, std::byte*, const Piece&) = nullptr;
  DType result = DType::kNone;
  BOLIDE_TRY(dispatch(types, a.dtype(), "input 0", [&]<class X>() -> Result<> {
    using Out = std::conditional_t<std::is_void_v<R>, X, R>;
    piece_of = combine_piece<X, X, Out, F>, result = kDTypeOf<Out>;
    return {};
  }));
  return combine_rows(c, a, b, result,
                      [&f, piece_of](const std::byte* x, const std::byte* y, std::byte* z, const Piece& piece) {
                        piece_of(f, x, y, z, piece);
                      });
}

// Inputs 0 and 1 of a binary op, the second shaped so that numpy's rule of broadcasting does what sets of operators
// before 7 mean by `broadcast` and `axis`.
struct Operands {
  const Tensor* a = nullptr;
  Tensor b;
};
Result<Operands> operands_of(RunContext& c);

// Parts of the group, a file each.
std::span<const OpDef> arithmetic_ops();  // elementwise_arithmetic.cc
std::span<const OpDef> logic_ops();       // elementwise_logic.cc
std::span<const OpDef> unary_ops();       // elementwise_unary.cc

}  // namespace bolide
