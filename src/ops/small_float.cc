#include "ops/small_float.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace bolide {

double decode_small(uint8_t code, const SmallFloat& f) {
  const unsigned sign = 1u << (f.exponent_bits + f.mantissa_bits);
  const unsigned magnitude = code & (sign - 1);
  const bool negative = (code & sign) != 0;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (f.nan == sign ? code == f.nan : f.nan != 0 && magnitude > std::max(f.largest, f.infinity)) return kNan;
  double value;
  if (f.infinity != 0 && magnitude == f.infinity) {
    value = std::numeric_limits<double>::infinity();
  } else {
    const unsigned exponent = magnitude >> f.mantissa_bits;
    const unsigned mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
    const unsigned implied = exponent == 0 ? 0 : 1u << f.mantissa_bits;
    value = std::ldexp(mantissa + implied, static_cast<int>(std::max(exponent, 1u)) - f.bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

uint8_t encode_small(double x, const SmallFloat& f, bool saturate) {
  const auto sign_bit = static_cast<uint8_t>(1u << (f.exponent_bits + f.mantissa_bits));
  const uint8_t sign = std::signbit(x) ? sign_bit : uint8_t{0};
  if (std::isnan(x)) return f.nan == 0 ? sign_bit : f.nan == sign_bit ? f.nan : static_cast<uint8_t>(f.nan | sign);
  const auto beyond = [&]() -> uint8_t {
    if (saturate || f.nan == 0) return static_cast<uint8_t>(f.largest | sign);
    if (f.infinity != 0) return static_cast<uint8_t>(f.infinity | sign);
    return f.nan == sign_bit ? f.nan : static_cast<uint8_t>(f.nan | sign);
  };
  const double magnitude = std::abs(x);
  if (std::isinf(x)) return beyond();
  const int least = 1 - f.bias;
  const int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
  if (exponent > 64) return beyond();
  const double steps = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const unsigned code = static_cast<unsigned>(steps) + (static_cast<unsigned>(exponent - least) << f.mantissa_bits);
  if (code > f.largest) return beyond();
  if (code == 0 && f.nan == sign_bit) return 0;
  return static_cast<uint8_t>(code | sign);
}

double decode_power(uint8_t code) {
  return code == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, int{code} - 127);
}

uint8_t encode_power(double x, PowerRound round, bool saturate) {
  constexpr uint8_t kNan = 0xff, kLargest = 0xfe;
  if (std::isnan(x) || x < 0) return kNan;
  if (x == 0) return saturate ? uint8_t{0} : kNan;
  if (std::isinf(x)) return saturate ? kLargest : kNan;
  int exponent = std::ilogb(x);
  const double mantissa = std::ldexp(x, -exponent);  // [1, 2)
  if (round == PowerRound::kUp ? mantissa > 1 : round == PowerRound::kNearest && mantissa >= 1.5) ++exponent;
  if (exponent < -127) return saturate ? uint8_t{0} : kNan;
  if (exponent > 127) return saturate ? kLargest : kNan;
  return static_cast<uint8_t>(exponent + 127);
}

float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || !std::isfinite(nearest)) return nearest;
  const float cut = std::abs(static_cast<double>(nearest)) > std::abs(x) ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(cut) | 1u);
}

}  // namespace bolide
