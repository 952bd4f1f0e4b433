#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace bolide {
namespace {

// Decoding and encoding again is the identity on every code that is a number.
TEST(Half, RoundTripsEveryCode) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto h = static_cast<uint16_t>(code);
    if (!std::isnan(f16_to_f32(h))) {
      EXPECT_EQ(f32_to_f16(f16_to_f32(h)), h);
    }
    if (!std::isnan(bf16_to_f32(h))) {
      EXPECT_EQ(f32_to_bf16(bf16_to_f32(h)), h);
    }
  }
  for (uint32_t code = 0; code < 0x100; ++code) {
    const auto v = static_cast<uint8_t>(code);
    if (!std::isnan(f8e4m3_to_f32(v))) {
      EXPECT_EQ(f32_to_f8e4m3(f8e4m3_to_f32(v)), v) << code;
    }
  }
}

// Encoding picks the nearest code, the even one at ties: compared with a search over all codes.
TEST(Half, RoundsToNearestEven) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-12, 9);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::exp2(exponent(random)) * (i % 2 ? 1.f : -1.f);
    const float got = f8e4m3_to_f32(f32_to_f8e4m3(x));
    double best = INFINITY;
    for (int code = 0; code < 256; ++code) {
      const double v = f8e4m3_to_f32(static_cast<uint8_t>(code));
      if (!std::isnan(v)) best = std::min(best, std::abs(v - x));
    }
    EXPECT_EQ(std::abs(static_cast<double>(got) - x), best) << x;
    const float f = f16_to_f32(f32_to_f16(x));
    EXPECT_LE(std::abs(f - x), std::abs(x) * 0x1p-11f + 0x1p-25f);
  }
  EXPECT_EQ(f32_to_f8e4m3(1.0625f), f32_to_f8e4m3(1.0f));   // tie between 1 and 1.125
  EXPECT_EQ(f32_to_f8e4m3(1.1875f), f32_to_f8e4m3(1.25f));  // tie between 1.125 and 1.25
  EXPECT_EQ(f32_to_f8e4m3(1e9f), 0x7e);
  EXPECT_EQ(f32_to_f16(65520.f), 0x7c00);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(NAN))));
}

}  // namespace
}  // namespace bolide
