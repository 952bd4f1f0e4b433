#include "ops/cast.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/run_op_for_test.h"
#include "ops/small_float.h"

namespace bolide {
namespace {

TEST(SmallFloat, CodesComeBackAndNumbersGoToTheNearest) {
  std::mt19937 chance(std::random_device{}());
  for (const SmallFloat* format : {&kE4M3, &kE5M2, &kE4M3FNUZ, &kE5M2FNUZ, &kE2M1}) {
    const int codes = 1 << (1 + format->exponent_bits + format->mantissa_bits);
    std::vector<double> finite;
    for (int code = 0; code < codes; ++code) {
      const double value = decode_small(static_cast<uint8_t>(code), *format);
      if (std::isnan(value)) continue;
      EXPECT_EQ(encode_small(value, *format, false), code);
      if (std::isfinite(value)) finite.push_back(value);
    }
    const double largest = decode_small(format->largest, *format);
    for (int i = 0; i < 2000; ++i) {
      const double x = std::ldexp(std::uniform_real_distribution<double>(-1, 1)(chance),
                                  std::uniform_int_distribution<int>(-format->bias - 5, 17)(chance));
      const double got = decode_small(encode_small(x, *format, true), *format);
      double nearest = finite[0];
      for (const double v : finite)
        if (std::abs(v - x) < std::abs(nearest - x)) nearest = v;
      if (std::abs(x) >= largest)
        EXPECT_EQ(std::abs(got), largest) << x;
      else
        EXPECT_EQ(std::abs(got - x), std::abs(nearest - x)) << x;
    }
    EXPECT_EQ(decode_small(encode_small(-1e30, *format, true), *format), -largest);
  }
  EXPECT_EQ(encode_small(17, kE4M3, true), encode_small(16, kE4M3, true));  // a tie goes to the even code
  EXPECT_EQ(encode_small(19, kE4M3, true), encode_small(20, kE4M3, true));
}

TEST(SmallFloat, RoundingToOddMakesTwoRoundingsOne) {
  // Above the middle of two f16 by less than f32 can tell.
  const double x = 1 + 0x1p-11 + 0x1p-40;
  auto made = cast(Tensor::scalar(DType::kF64, x), DType::kF16, heap_pool());
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->as<uint16_t>()[0], 0x3c01);
}

TEST(Cast, TextsAndBack) {
  const Tensor texts = Tensor::strings({7}, {"1", "-2.5", "1e3", "+INF", "-inf", " 7 ", "18446744073709551615"});
  auto reals = cast(texts, DType::kF64, heap_pool());
  ASSERT_TRUE(reals.has_value()) << reals.error().text;
  const auto v = reals->as<double>();
  EXPECT_EQ(std::vector<double>(v.begin(), v.end()),
            (std::vector<double>{1, -2.5, 1000, INFINITY, -INFINITY, 7, 18446744073709551615.0}));
  auto whole = cast(Tensor::strings({1}, {"18446744073709551615"}), DType::kU64, heap_pool());
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->as<uint64_t>()[0], UINT64_MAX);
  for (const char* wrong : {"", "Hello", "1x", "-", "1 2"}) {
    EXPECT_FALSE(cast(Tensor::strings({1}, {wrong}), DType::kF32, heap_pool())) << wrong;
  }
  const Tensor numbers = floats({4}, {0.1f, -3, 1e30f, NAN});
  auto back = cast(numbers, DType::kString, heap_pool());
  ASSERT_TRUE(back.has_value());
  const auto t = back->as<std::string>();
  EXPECT_EQ(std::vector<std::string>(t.begin(), t.end()), (std::vector<std::string>{"0.1", "-3.0", "1e+30", "NaN"}));
}

TEST(Cast, NumbersBeyondARange) {
  const auto one = [](const Tensor& from, DType to) {
    auto made = cast(from, to, heap_pool());
    int64_t value = 0;
    load(*made, 0, 1, &value);
    return value;
  };
  EXPECT_EQ(one(Tensor::scalar(DType::kF64, 1e30), DType::kI64), INT64_MAX);
  EXPECT_EQ(one(Tensor::scalar(DType::kF64, -1e30), DType::kI32), INT32_MIN);
  EXPECT_EQ(one(Tensor::scalar(DType::kF32, NAN), DType::kI32), 0);
  EXPECT_EQ(one(Tensor::scalar(DType::kI16, int16_t{200}), DType::kI8), -56);
  EXPECT_EQ(one(Tensor::scalar(DType::kI32, 9), DType::kI4), -7);
  EXPECT_EQ(one(Tensor::scalar(DType::kI32, -1), DType::kU2), 3);
}

TEST(Cast, WrongAttributesAreErrors) {
  const Tensor x = floats({1}, {1});
  for (const int64_t to : {int64_t{0}, int64_t{-1}, int64_t{14}, int64_t{1000}, INT64_MIN})
    EXPECT_FALSE(run_op("Cast", 22, {x}, {{"to", to}})) << to;
  EXPECT_FALSE(run_op("Cast", 22, {x}));
  EXPECT_FALSE(run_op("Cast", 24, {x}, {{"to", int64_t{24}}, {"round_mode", std::string("sideways")}}));
  EXPECT_FALSE(run_op("BitCast", 26, {x}, {{"to", int64_t{7}}}));
  EXPECT_FALSE(run_op("BitCast", 26, {Tensor::strings({1}, {"a"})}, {{"to", int64_t{8}}}));
}

}  // namespace
}  // namespace bolide
