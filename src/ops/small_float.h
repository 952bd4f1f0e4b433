// Floats of 8 and 4 bits: codes to numbers and numbers to the nearest code, a tie to the even one.
#pragma once

#include <cstdint>

namespace bolide {

struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  uint8_t largest;   // code of the largest finite number
  uint8_t infinity;  // 0: there is none
  uint8_t nan;       // the sign's bit alone where there is no -0
};
inline constexpr SmallFloat kE4M3{4, 3, 7, 0x7e, 0, 0x7f};
inline constexpr SmallFloat kE5M2{5, 2, 15, 0x7b, 0x7c, 0x7e};
inline constexpr SmallFloat kE4M3FNUZ{4, 3, 8, 0x7f, 0, 0x80};
inline constexpr SmallFloat kE5M2FNUZ{5, 2, 16, 0x7f, 0, 0x80};
inline constexpr SmallFloat kE2M1{2, 1, 1, 0x7, 0, 0};  // no NaN: it becomes -0

double decode_small(uint8_t code, const SmallFloat& format);
// saturate: the largest number for what is beyond it, else infinity, or NaN if there is none. E2M1 always saturates.
uint8_t encode_small(double x, const SmallFloat& format, bool saturate);

// Powers of two, 2^-127 to 2^127; 0xff is NaN, and so is a negative number.
enum class PowerRound : uint8_t { kUp, kDown, kNearest };
double decode_power(uint8_t code);
uint8_t encode_power(double x, PowerRound round, bool saturate);

// The f32 next to x towards zero, its last bit set if it is not x: rounding it once more to a narrower type is then the
// same as rounding x.
float round_to_odd(double x);

}  // namespace bolide
