#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ops/run_op_for_test.h"
#include "ops/shape.h"

namespace bolide {
namespace {

constexpr int64_t kVersion = 22;

Tensor random_floats(const Shape& shape, std::mt19937& chance) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& v : values) v = std::uniform_real_distribution<float>(-4, 4)(chance);
  return floats(shape, std::move(values));
}

// Element `index` (row-major in `wide`) of a tensor that broadcasts to it, by the definition.
float at(const Tensor& t, const Shape& wide, int64_t index) {
  int64_t offset = 0, step = 1;
  for (int i = 1; i <= wide.rank; ++i) {
    const int64_t where = index % wide[-i];
    index /= wide[-i];
    if (i > t.rank()) continue;
    if (t.dim(-i) != 1) offset += where * step;
    step *= t.dim(-i);
  }
  return t.as<float>()[static_cast<size_t>(offset)];
}

TEST(Elementwise, BroadcastsAllRanksAsDefined) {
  std::mt19937 chance(std::random_device{}());
  for (int round = 0; round < 300; ++round) {
    const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(chance); };
    Shape wide, a, b;
    wide.rank = pick(kRankMax);
    a.rank = pick(wide.rank), b.rank = wide.rank;
    if (pick(1) == 0) std::swap(a.rank, b.rank);
    for (int i = 1; i <= wide.rank; ++i) {
      wide[-i] = pick(round % 7 == 0 ? 30 / wide.rank : 3) + (round % 11 == 0 ? 0 : 1);
      const int which = pick(3);
      if (i <= a.rank) a[-i] = which == 1 && i <= b.rank ? 1 : wide[-i];
      if (i <= b.rank) b[-i] = which == 2 && i <= a.rank ? 1 : wide[-i];
    }
    const Tensor x = random_floats(a, chance), y = random_floats(b, chance);
    const auto got = run_op("Sub", kVersion, {x, y});
    ASSERT_TRUE(got.has_value()) << got.error().text;
    const Tensor& z = *(*got)[0].tensor();
    ASSERT_EQ(z.shape(), wide) << to_string(a) << to_string(b);
    for (int64_t i = 0; i < z.elements(); ++i)
      ASSERT_EQ(z.as<float>()[static_cast<size_t>(i)], at(x, wide, i) - at(y, wide, i)) << to_string(a) << to_string(b);
  }
}

TEST(Elementwise, ManyElementsAreShared) {
  std::mt19937 chance(1);
  const Shape wide{3, 70, 500};
  const Tensor x = random_floats(wide, chance), y = random_floats({70, 1}, chance);
  const auto got = run_op("Mul", kVersion, {x, y});
  ASSERT_TRUE(got.has_value());
  for (int64_t i = 0; i < wide.elements(); ++i)
    ASSERT_EQ((*got)[0].tensor()->as<float>()[static_cast<size_t>(i)], at(x, wide, i) * at(y, wide, i));
}

TEST(Elementwise, OldSetsAlignTheSecondAtAnAxis) {
  const Tensor x = floats({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const auto got = run_op("Add", 6, {x, floats({3}, {10, 20, 30})}, {{"broadcast", int64_t{1}}, {"axis", int64_t{1}}});
  ASSERT_TRUE(got.has_value()) << got.error().text;
  const auto z = (*got)[0].tensor()->as<float>();
  EXPECT_EQ(std::vector<float>(z.begin(), z.end()),
            (std::vector<float>{10, 11, 22, 23, 34, 35, 16, 17, 28, 29, 40, 41}));
  EXPECT_FALSE(run_op("Add", 6, {x, floats({3}, {1, 2, 3})}, {{"broadcast", int64_t{1}}, {"axis", int64_t{5}}}));
  EXPECT_FALSE(run_op("Add", 6, {x, floats({3}, {1, 2, 3})}, {{"broadcast", int64_t{1}}, {"axis", INT64_MIN}}));
}

TEST(Elementwise, IntegersNeverFault) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const Tensor least = integers({1}, {kLeast}), minus = integers({1}, {-1}), zero = integers({1}, {0});
  const auto value = [](const Result<std::vector<AnyValue>>& r) { return (*r)[0].tensor()->as<int64_t>()[0]; };
  EXPECT_EQ(value(run_op("Div", kVersion, {least, minus})), kLeast);
  EXPECT_EQ(value(run_op("Mod", kVersion, {least, minus})), 0);
  EXPECT_EQ(value(run_op("Mod", kVersion, {integers({1}, {-7}), integers({1}, {3})})), 2);
  EXPECT_EQ(value(run_op("Mod", kVersion, {integers({1}, {-7}), integers({1}, {3})}, {{"fmod", int64_t{1}}})), -1);
  EXPECT_EQ(value(run_op("Neg", kVersion, {least})), kLeast);
  EXPECT_EQ(value(run_op("Abs", kVersion, {least})), kLeast);
  EXPECT_EQ(value(run_op("Add", kVersion, {least, minus})), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(value(run_op("BitShift", 28, {minus, integers({1}, {200})}, {{"direction", std::string("RIGHT")}})), -1);
  EXPECT_EQ(value(run_op("BitShift", 28, {minus, integers({1}, {-2})}, {{"direction", std::string("LEFT")}})), 0);
  for (const char* op : {"Div", "Mod"}) {
    const auto got = run_op(op, kVersion, {least, zero});
    ASSERT_FALSE(got.has_value());
    EXPECT_NE(got.error().text.find("divides by 0"), std::string::npos) << got.error().text;
  }
  EXPECT_TRUE(run_op("Div", kVersion, {integers({0}, {}), integers({0}, {})}));
}

TEST(Elementwise, WrongInputsAreErrors) {
  const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}), i = integers({2}, {1, 2});
  EXPECT_FALSE(run_op("Add", kVersion, {x, i}));
  EXPECT_FALSE(run_op("Add", kVersion, {x}));
  EXPECT_FALSE(run_op("Add", kVersion, {x, Tensor()}));
  EXPECT_FALSE(run_op("Sqrt", kVersion, {i}));
  EXPECT_FALSE(run_op("Not", kVersion, {i}));
  EXPECT_FALSE(run_op("Mod", kVersion, {x, x}));
  EXPECT_FALSE(run_op("Where", kVersion, {x, x, x}));
  EXPECT_FALSE(run_op("Clip", kVersion, {x, i}));
  EXPECT_FALSE(run_op("PRelu", kVersion, {x, floats({4, 2, 3}, std::vector<float>(24))}));
  EXPECT_FALSE(run_op("BitShift", kVersion, {i, i}, {{"direction", std::string("UP")}}));
  EXPECT_FALSE(run_op("Gelu", kVersion, {x}, {{"approximate", std::string("no")}}));
  EXPECT_FALSE(run_op("Elu", kVersion, {x}, {{"alpha", int64_t{1}}}));
  EXPECT_FALSE(run_op("Softmax", kVersion, {x}, {{"axis", int64_t{2}}}));
  EXPECT_FALSE(run_op("ReduceSum", kVersion, {x, integers({1}, {7})}));
  EXPECT_FALSE(run_op("ReduceSum", kVersion, {x, integers({2}, {0, 0})}));
  EXPECT_FALSE(run_op("ArgMax", kVersion, {floats({0, 3}, {})}));
  EXPECT_FALSE(run_op("CumSum", kVersion, {x, integers({2}, {0, 1})}));
  EXPECT_FALSE(run_op("NegativeLogLikelihoodLoss", kVersion, {x, integers({2}, {0, 3})}));
  EXPECT_FALSE(run_op("NegativeLogLikelihoodLoss", kVersion, {x, integers({3}, {0, 0, 0})}));
  EXPECT_FALSE(run_op("Multinomial", kVersion, {x}, {{"sample_size", int64_t{-1}}}));
  EXPECT_FALSE(run_op("RandomNormal", kVersion, {}, {{"shape", std::vector<int64_t>{1 << 30, 1 << 30}}}));
  EXPECT_FALSE(run_op("Dropout", kVersion, {x, floats({}, {1.5f})}));
  EXPECT_FALSE(run_op("Adam", 1, {x, i, x}, {}, 1, "ai.onnx.preview.training"));
}

TEST(Elementwise, NoElementsAreFine) {
  const int64_t large = int64_t{1} << 40;
  for (const Shape& shape : {Shape{0}, Shape{3, 0, 2}, Shape{large, large, 0}, Shape{large, 0, large}}) {
    const Tensor x = Tensor::over(nullptr, nullptr, DType::kF32, {0}).reshaped({0});
    auto made = Tensor::make(DType::kF32, shape);
    ASSERT_TRUE(made.has_value());
    for (const char* op : {"Add", "Max"}) EXPECT_TRUE(run_op(op, kVersion, {*made, *made})) << to_string(shape);
    for (const char* op : {"Relu", "Exp", "Abs", "Softmax", "LogSoftmax"})
      EXPECT_TRUE(run_op(op, kVersion, {*made})) << op << to_string(shape);
    EXPECT_TRUE(run_op("CumSum", kVersion, {*made, integers({}, {0})}));
    EXPECT_TRUE(run_op("Cast", kVersion, {*made}, {{"to", int64_t{7}}}));
    EXPECT_TRUE(run_op("ReduceMax", kVersion, {x}));
  }
}

}  // namespace
}  // namespace bolide
