#include <gtest/gtest.h>

#include <cmath>

#include "ops/run_op_for_test.h"

namespace bolide {
namespace {

std::vector<float> draw(const char* op, std::vector<NamedAttribute> attributes) {
  attributes.emplace_back("shape", std::vector<int64_t>{20000});
  const auto got = run_op(op, 22, {}, attributes);
  EXPECT_TRUE(got.has_value());
  const auto v = (*got)[0].tensor()->as<float>();
  return {v.begin(), v.end()};
}

std::pair<double, double> moments(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float v : values)
    sum += static_cast<double>(v), squares += static_cast<double>(v) * static_cast<double>(v);
  const double mean = sum / static_cast<double>(values.size());
  return {mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean)};
}

TEST(Random, HasTheMomentsAskedFor) {
  const auto [mean, deviation] = moments(draw("RandomNormal", {{"mean", 3.0f}, {"scale", 2.0f}}));
  EXPECT_NEAR(mean, 3, 0.1);
  EXPECT_NEAR(deviation, 2, 0.1);
  const auto [middle, spread] = moments(draw("RandomUniform", {{"low", -1.0f}, {"high", 3.0f}}));
  EXPECT_NEAR(middle, 1, 0.1);
  EXPECT_NEAR(spread, 4 / std::sqrt(12.0), 0.1);
}

TEST(Random, SeedsRepeatAndTheirAbsenceDoesNot) {
  EXPECT_EQ(draw("RandomNormal", {{"seed", 7.0f}}), draw("RandomNormal", {{"seed", 7.0f}}));
  EXPECT_NE(draw("RandomNormal", {{"seed", 7.0f}}), draw("RandomNormal", {{"seed", 7.5f}}));
  EXPECT_NE(draw("RandomNormal", {}), draw("RandomNormal", {}));
  EXPECT_NEAR(draw("RandomUniform", {{"seed", 0.0f}})[0], 0.5488135, 1e-6);  // numpy's first of seed 0
}

TEST(Random, ClassesComeAsOftenAsTheirWeights) {
  const Tensor logs = floats({2, 3}, {std::log(1.0f), std::log(2.0f), std::log(5.0f), 0, -INFINITY, 0});
  const auto got = run_op("Multinomial", 22, {logs}, {{"sample_size", int64_t{20000}}, {"dtype", int64_t{7}}});
  ASSERT_TRUE(got.has_value()) << got.error().text;
  std::array<std::array<double, 3>, 2> share{};
  const auto classes = (*got)[0].tensor()->as<int64_t>();
  for (size_t i = 0; i < classes.size(); ++i) share[i / 20000][static_cast<size_t>(classes[i])] += 1.0 / 20000;
  EXPECT_NEAR(share[0][0], 0.125, 0.02);
  EXPECT_NEAR(share[0][2], 0.625, 0.02);
  EXPECT_EQ(share[1][1], 0);
}

TEST(Random, DropoutKeepsTheMean) {
  const Tensor x = floats({20000}, std::vector<float>(20000, 1));
  const Tensor training = tensor_of(DType::kBool, {}, std::vector<uint8_t>{1});
  const auto got = run_op("Dropout", 22, {x, floats({}, {0.25f}), training}, {}, 2);
  ASSERT_TRUE(got.has_value());
  const auto y = (*got)[0].tensor()->as<float>();
  const auto kept = (*got)[1].tensor()->as<uint8_t>();
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(y[i] != 0, kept[i] == 1);
    sum += static_cast<double>(y[i]);
  }
  EXPECT_NEAR(sum / 20000, 1, 0.03);
}

}  // namespace
}  // namespace bolide
