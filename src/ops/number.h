// Element types as C++ types, and the way from a DType to them.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/result.h"
#include "tensor/half.h"
#include "tensor/value.h"

namespace bolide {

// Floats that the processor has no arithmetic for: computed as f32. `bits` is what tensors hold.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct F8E4M3 {
  uint8_t bits;
};
struct F8E5M2 {
  uint8_t bits;
};
struct F8E4M3FNUZ {
  uint8_t bits;
};
struct F8E5M2FNUZ {
  uint8_t bits;
};
struct F8E8M0 {
  uint8_t bits;
};
struct F4E2M1 {
  uint8_t bits;  // the low four
};
// Integers of less than a byte, in one.
struct I4 {
  int8_t value;
};
struct U4 {
  uint8_t value;
};
struct I2 {
  int8_t value;
};
struct U2 {
  uint8_t value;
};
// bool is uint8_t 0 or 1 in memory; this type keeps it apart from u8.
struct Bool {
  uint8_t value;
};

template <class T>
constexpr DType kDTypeOf = DType::kNone;
#define BOLIDE_DTYPE_OF(type, dtype) \
  template <>                        \
  inline constexpr DType kDTypeOf<type> = DType::dtype;
BOLIDE_DTYPE_OF(double, kF64)
BOLIDE_DTYPE_OF(float, kF32)
BOLIDE_DTYPE_OF(F16, kF16)
BOLIDE_DTYPE_OF(BF16, kBF16)
BOLIDE_DTYPE_OF(F8E4M3, kF8E4M3)
BOLIDE_DTYPE_OF(F8E5M2, kF8E5M2)
BOLIDE_DTYPE_OF(F8E4M3FNUZ, kF8E4M3FNUZ)
BOLIDE_DTYPE_OF(F8E5M2FNUZ, kF8E5M2FNUZ)
BOLIDE_DTYPE_OF(F8E8M0, kF8E8M0)
BOLIDE_DTYPE_OF(F4E2M1, kF4E2M1)
BOLIDE_DTYPE_OF(int64_t, kI64)
BOLIDE_DTYPE_OF(int32_t, kI32)
BOLIDE_DTYPE_OF(int16_t, kI16)
BOLIDE_DTYPE_OF(int8_t, kI8)
BOLIDE_DTYPE_OF(I4, kI4)
BOLIDE_DTYPE_OF(I2, kI2)
BOLIDE_DTYPE_OF(uint64_t, kU64)
BOLIDE_DTYPE_OF(uint32_t, kU32)
BOLIDE_DTYPE_OF(uint16_t, kU16)
BOLIDE_DTYPE_OF(uint8_t, kU8)
BOLIDE_DTYPE_OF(U4, kU4)
BOLIDE_DTYPE_OF(U2, kU2)
BOLIDE_DTYPE_OF(Bool, kBool)
BOLIDE_DTYPE_OF(std::string, kString)
#undef BOLIDE_DTYPE_OF

// The type that arithmetic on T is done in: T itself, or f32 for narrow floats, or int32_t for integers below a byte.
template <class T>
struct WideOf {
  using type = T;
};
template <class T>
  requires requires(T t) { t.bits; }
struct WideOf<T> {
  using type = float;
};
template <class T>
  requires requires(T t) { t.value; }
struct WideOf<T> {
  using type = int32_t;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
  requires std::is_arithmetic_v<T>
constexpr T widen(T v) {
  return v;
}
inline float widen(F16 v) { return f16_to_f32(v.bits); }
inline float widen(BF16 v) { return bf16_to_f32(v.bits); }
inline float widen(F8E4M3 v) { return f8e4m3_to_f32(v.bits); }
inline float widen(F8E5M2 v) { return f8e5m2_to_f32(v.bits); }
template <class T>
  requires requires(T t) { t.value; }
constexpr int32_t widen(T v) {
  return v.value;
}

// To nearest even; integers are cut as static_cast does.
template <class T>
  requires std::is_arithmetic_v<T>
constexpr T narrow(T v) {
  return v;
}
template <class T>
  requires std::same_as<T, F16>
inline T narrow(float v) {
  return {f32_to_f16(v)};
}
template <class T>
  requires std::same_as<T, BF16>
inline T narrow(float v) {
  return {f32_to_bf16(v)};
}
template <class T>
  requires requires(T t) { t.value; }
constexpr T narrow(int32_t v) {
  return {static_cast<decltype(T::value)>(v)};
}

template <class... T>
struct Types {};
template <class... A, class... B>
constexpr Types<A..., B...> operator+(Types<A...>, Types<B...>) {
  return {};
}
inline constexpr Types<float, double, F16, BF16> kFloats;
inline constexpr Types<int64_t, int32_t, int16_t, int8_t> kSigned;
inline constexpr Types<uint64_t, uint32_t, uint16_t, uint8_t> kUnsigned;
inline constexpr Types<int64_t, int32_t, int16_t, int8_t, uint64_t, uint32_t, uint16_t, uint8_t> kIntegers;
inline constexpr Types<float, double, F16, BF16, int64_t, int32_t, int16_t, int8_t, uint64_t, uint32_t, uint16_t,
                       uint8_t>
    kNumbers;

// f.template operator()<T>() for the type of the list that is `dtype`; kInvalid if none is. `what` for the error: "x".
template <class... T, class F>
Result<> dispatch(Types<T...>, DType dtype, std::string_view what, F&& f) {
  Result<> done;
  const bool found = ((dtype == kDTypeOf<T> ? (done = f.template operator()<T>(), true) : false) || ...);
  if (found) return done;
  std::string names;
  ((names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(kDTypeOf<T>))), ...);
  return error(Code::kInvalid, fmt::format("{} is of {}, expected one of {}", what, to_string(dtype), names));
}

// By the size of an element alone, for ops that only move elements: f.operator()<uint8_t, uint16_t, uint32_t, uint64_t
// or std::string>().
template <class F>
Result<> dispatch_moves(DType dtype, F&& f) {
  if (dtype == DType::kString) return f.template operator()<std::string>();
  switch (element_bytes(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    case 8: return f.template operator()<uint64_t>();
    default: return error(Code::kInvalid, fmt::format("elements of {}", to_string(dtype)));
  }
}

}  // namespace bolide
