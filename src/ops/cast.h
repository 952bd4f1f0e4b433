// Conversion of elements between all types, for Cast and for whoever needs another type than the one at hand.
//
// Thread rules: free functions on data of the caller's.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/result.h"
#include "tensor/value.h"

namespace bolide {

struct CastRules {
  enum class Round : uint8_t { kUp, kDown, kNearest };  // to powers of two; a tie of kNearest goes up
  bool saturate = true;                                 // to floats of 8 bits: the largest instead of NaN or infinity
  Round powers = Round::kUp;
};

// A tensor of the same shape with each element in another type. Beyond the range of an integer type, integers lose
// their high bits, floats go to the nearest of 64 (or 32) bits and then lose high bits; NaN is 0. kInvalid: a text that
// is no number.
Result<Tensor> cast(const Tensor& from, DType to, TensorPool& pool, const CastRules& rules = {});

// The type that ONNX numbers so (TensorProto.DataType). kInvalid or kUnsupported: there is none.
Result<DType> dtype_of_number(int64_t number);

// What holds every value of a type: f64 for floats, u64 for itself, i64 for all others.
enum class Wider : uint8_t { kReal, kSigned, kUnsigned };
Wider wider_of(DType dtype);
// n elements, no strings, read as a wider type or written from one, as cast has it. `first` is an index of elements.
void load(const Tensor& from, int64_t first, int64_t n, double* to);
void load(const Tensor& from, int64_t first, int64_t n, int64_t* to);
void load(const Tensor& from, int64_t first, int64_t n, uint64_t* to);
void store(Tensor& to, int64_t first, int64_t n, const double* from, const CastRules& rules = {});
void store(Tensor& to, int64_t first, int64_t n, const int64_t* from, const CastRules& rules = {});
void store(Tensor& to, int64_t first, int64_t n, const uint64_t* from, const CastRules& rules = {});

// The integer next to zero, at most that of the range; 0 for NaN.
inline int64_t saturate_to_i64(double x) {
  if (std::isnan(x)) return 0;
  if (x >= 0x1p63) return std::numeric_limits<int64_t>::max();
  if (x <= -0x1p63) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(x);
}

}  // namespace bolide
