// Layer and RMS normalisation, plain and as com.microsoft fuses them.
#pragma once

#include <cstdint>

#include "ir/op_def.h"

namespace bolide {

// Mean and population variance, in f64.
struct Moments {
  double mean = 0, variance = 0;
};
template <class T>
Moments moments_of(const T* values, int64_t count) {
  Moments moments;
  if (count == 0) return moments;
  for (int64_t i = 0; i < count; ++i) moments.mean += static_cast<double>(values[i]);
  moments.mean /= static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    const double d = static_cast<double>(values[i]) - moments.mean;
    moments.variance += d * d;
  }
  moments.variance /= static_cast<double>(count);
  return moments;
}

// Which inputs and outputs a normalisation has; kNone: it has none such.
struct RowNormalisation {
  static constexpr int kNone = -1;
  int64_t axis = -1;  // rows are what lies from this axis on
  double epsilon = 1e-5;
  bool centred = true;  // false: RMS
  int scale = kNone, bias = kNone;
  int skip = kNone, skip_bias = kNone;             // added to the input before
  int mean = kNone, inverse = kNone, sum = kNone;  // outputs
};
// Input 0 to output 0.
Result<> normalise_rows(RunContext& c, const RowNormalisation& normalisation);

}  // namespace bolide
