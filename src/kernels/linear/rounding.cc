#include "kernels/linear/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tensor/half.h"

namespace bolide {
namespace {

// Magnitudes compare as integers: NaN above infinity above every number, so that none of them is lost.
uint32_t largest_magnitude(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return largest;
}

}  // namespace

float round_group_int8(const float* x, int64_t count, int8_t* codes) {
  const float largest = std::bit_cast<float>(largest_magnitude(x, count));
  const bool tiny = largest < 0x1p-120f;
  if (tiny || !(largest <= 3.4028235e38f)) {
    for (int64_t i = 0; i < count; ++i) codes[i] = tiny ? 0 : 1;
    return tiny ? 0.f : largest;
  }
  const float inverse = 127.f / largest;
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<int8_t>(std::nearbyintf(x[i] * inverse));
  return largest / 127.f;
}

void round_token_f8(const float* x, int64_t k, float* out) {
  const float largest = std::bit_cast<float>(largest_magnitude(x, k));
  const float scale = largest / 448.f > 0x1p-23f || std::isnan(largest) ? largest / 448.f : 0x1p-23f;
  for (int64_t i = 0; i < k; ++i) out[i] = scale * f8e4m3_to_f32(f32_to_f8e4m3(x[i] / scale));
}

void round_token(Compute compute, InputRounding rounding, const float* x, int64_t k, double* out) {
  std::vector<float> rounded(x, x + k);
  if (rounding == InputRounding::kF8Token) round_token_f8(x, k, rounded.data());
  switch (compute) {
    case Compute::kF32: std::copy(rounded.begin(), rounded.end(), out); return;
    case Compute::kBF16:
      for (int64_t i = 0; i < k; ++i) out[i] = bf16_to_f32(f32_to_bf16(rounded[static_cast<size_t>(i)]));
      return;
    case Compute::kInt8:
      for (int64_t begin = 0; begin < k; begin += kInt8Group) {
        const int64_t count = std::min(kInt8Group, k - begin);
        int8_t codes[kInt8Group];
        const double scale = round_group_int8(rounded.data() + begin, count, codes);
        for (int64_t i = 0; i < count; ++i) out[begin + i] = scale * codes[i];
      }
      return;
  }
}

}  // namespace bolide
