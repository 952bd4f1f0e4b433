#include "eval/network_compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace bolide {
namespace {

Tensor floats(std::vector<float> values) { return Tensor::vector(DType::kF32, std::span<const float>(values)); }

TEST(DifferenceOf, AgreesWithTheDefinitions) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> a(1000), b(1000);
  double dd = 0, aa = 0, bb = 0, ab = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(random), b[i] = a[i] + 0.1f * normal(random);
    const double x = a[i], y = b[i];
    dd += (x - y) * (x - y), aa += x * x, bb += y * y, ab += x * y, most = std::max(most, std::abs(x - y));
  }
  const ValueDifference difference = difference_of(floats(a), floats(b));
  EXPECT_EQ(difference.elements, 1000);
  EXPECT_DOUBLE_EQ(difference.max_abs, most);
  EXPECT_NEAR(difference.relative_l2, std::sqrt(dd / bb), 1e-12);
  EXPECT_NEAR(difference.cosine, ab / std::sqrt(aa * bb), 1e-12);
  EXPECT_EQ(difference.unlike, "");
}

TEST(DifferenceOf, EdgesOfNumbers) {
  const float nan = std::nanf(""), inf = INFINITY;
  EXPECT_EQ(difference_of(floats({nan, inf, 1}), floats({nan, inf, 1})).max_abs, 0);
  EXPECT_TRUE(std::isinf(difference_of(floats({nan, 1}), floats({1, 1})).max_abs));
  EXPECT_TRUE(std::isinf(difference_of(floats({inf}), floats({-inf})).max_abs));
  EXPECT_EQ(difference_of(floats({0, 0}), floats({0, 0})).cosine, 1);
  EXPECT_EQ(difference_of(floats({0, 0}), floats({0, 0})).relative_l2, 0);
  EXPECT_TRUE(std::isinf(difference_of(floats({1}), floats({0})).relative_l2));
  EXPECT_EQ(difference_of(floats({1}), floats({0})).cosine, 0);
  EXPECT_EQ(difference_of(floats({}), floats({})).elements, 0);
}

TEST(DifferenceOf, SaysWhatIsUnlike) {
  EXPECT_EQ(difference_of(floats({1, 2}), floats({1})).unlike, "f32[2] and f32[1]");
  EXPECT_EQ(difference_of(floats({1}), AnyValue()).unlike, "f32[1] and none");
  const Tensor a = Tensor::strings({2}, {"a", "b"}), b = Tensor::strings({2}, {"a", "c"});
  EXPECT_EQ(difference_of(a, a).unlike, "");
  EXPECT_NE(difference_of(a, b).unlike, "");
}

}  // namespace
}  // namespace bolide
