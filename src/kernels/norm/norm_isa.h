// Row functions of norm_avx2.cc and norm_avx512.cc. Outputs may be inputs. Sums of squares are f32 in several partial
// sums, in an order that depends on `count` alone.
#pragma once

#include <cstdint>

namespace bolide::isa {

struct NormFunctions {
  void (*rms)(const float* x, const float* weight, float eps, int64_t count, float* out);
  // total = x + residual, out = its norm.
  void (*add_rms)(const float* x, const float* residual, const float* weight, float eps, int64_t count, float* total,
                  float* out);
  void (*layer)(const float* x, const float* weight, const float* bias, float eps, int64_t count, float* out);
};
extern const NormFunctions kNormAvx2, kNormAvx512;

}  // namespace bolide::isa
