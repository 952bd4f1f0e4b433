#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace bolide {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return error(Code::kInvalid, "odd");
  return x / 2;
}

Result<std::unique_ptr<int>> quarter(int x) {
  BOLIDE_TRY(const int h, half(x));
  BOLIDE_TRY(int q, half(h));
  return std::make_unique<int>(q);
}

Result<> both(int a, int b) {
  BOLIDE_TRY(half(a));
  BOLIDE_TRY(half(b));
  return {};
}

TEST(Result, PassesValuesThrough) {
  auto r = quarter(12);
  ASSERT_TRUE(r.has_value());
  EXPECT_EQ(**r, 3);
  EXPECT_TRUE(both(2, 4).has_value());
}

TEST(Result, ReturnsTheFirstError) {
  const auto r = quarter(6);
  ASSERT_FALSE(r.has_value());
  EXPECT_EQ(r.error().code, Code::kInvalid);
  EXPECT_FALSE(both(2, 3).has_value());
}

TEST(Result, ContextGoesInFront) {
  auto r = half(3).context("file.gguf");
  EXPECT_EQ(r.error().text, "file.gguf: odd");
  EXPECT_TRUE(half(4).context("file.gguf").has_value());
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) { EXPECT_DEATH((void)*half(3), "odd"); }

}  // namespace
}  // namespace bolide
