// fuse_quantised on graphs that are built here: what is left of them, and that values stay within a step.
#include <gtest/gtest.h>

#include "passes/general/graph_for_test.h"

namespace bolide {
namespace {

using test::Left;

class Builder : public test::Builder {
 public:
  ValueId constant(Tensor tensor) { return graph.add_constant("c", AnyValue(std::move(tensor))); }
  // Codes of x and their values again.
  ValueId rounded(ValueId x, float scale, DType dtype = DType::kU8, int zero = 128) {
    const ValueId s = number(scale), z = dtype == DType::kU8
                                             ? constant(Tensor::scalar(dtype, static_cast<uint8_t>(zero)))
                                             : constant(Tensor::scalar(dtype, static_cast<int8_t>(zero)));
    return op("DequantizeLinear", {op("QuantizeLinear", {x, s, z}), s, z});
  }
  ValueId weights(const Shape& shape, int axis, float scale) {
    auto made = Tensor::make(DType::kI8, shape);
    for (int64_t i = 0; i < made->elements(); ++i) made->mutable_data()[i] = static_cast<std::byte>(random_());
    auto scales = Tensor::make(DType::kF32, {shape[axis]});
    for (float& v : scales->mutate<float>()) v = scale;
    return op("DequantizeLinear", {constant(*made), constant(*scales)}, {{"axis", int64_t{axis}}});
  }
  ValueId bias(int64_t n, float scale) {
    auto made = Tensor::make(DType::kI32, {n});
    for (int32_t& v : made->mutate<int32_t>()) v = static_cast<int32_t>(random_() % 2000) - 1000;
    return op("DequantizeLinear", {constant(*made), number(scale)});
  }

  // Outputs may differ by `step` (one code) and less than `few` of them may at all. What is left, by name.
  Left check_codes(double step, double few = 0.01) {
    Workers workers(1);
    const Tensor before = run(workers)[0];
    const auto records = run_general_passes(graph, facts(), workers);
    EXPECT_TRUE(records) << (records ? "" : records.error().text);
    EXPECT_TRUE(graph.verify());
    const Tensor after = run(workers)[0];
    EXPECT_EQ(before.shape(), after.shape());
    if (before.shape() == after.shape()) {
      int64_t other = 0;
      for (size_t i = 0; i < before.as<float>().size(); ++i) {
        const double difference = std::abs(static_cast<double>(before.as<float>()[i] - after.as<float>()[i]));
        EXPECT_LE(difference, 1.01 * step) << i;
        other += difference > step / 2 ? 1 : 0;
      }
      EXPECT_LE(static_cast<double>(other), 2 + few * static_cast<double>(before.elements()));
    }
    return left();
  }

 private:
  std::mt19937 random_{std::random_device{}()};
};

TEST(FuseQuantised, ConvolutionsWithTheirSum) {
  Builder b;  // scales whose ratios are far from simple ones: no value lies in the middle between two codes
  const ValueId x = b.rounded(b.input({1, 3, 9, 9}), 0.0317f);
  ValueId y = b.op("Conv", {x, b.weights({20, 3, 3, 3}, 0, 0.0113f), b.bias(20, 0.0317f * 0.0113f)});
  y = b.rounded(b.op("Relu", {y}), 0.0523f, DType::kU8, 3);
  const ValueId shortcut = b.rounded(b.op("Conv", {y, b.weights({24, 20, 1, 1}, 0, 0.0113f)}), 0.1097f);
  ValueId z = b.op("Conv", {y, b.weights({24, 20, 3, 3}, 0, 0.0113f)}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  z = b.op("Add", {b.rounded(z, 0.2171f), shortcut});
  z = b.rounded(b.op("Relu", {z}), 0.2171f, DType::kU8, 0);
  z = b.rounded(b.op("MaxPool", {z}, {{"kernel_shape", std::vector<int64_t>{2, 2}}}), 0.2171f, DType::kU8, 0);
  b.graph.add_output("y", z);
  auto left = b.check_codes(0.2171);
  EXPECT_EQ(left["QConv"], 3);
  EXPECT_EQ(left["QMaxPool"], 1);
  EXPECT_EQ(left["Transpose"], 1);
  EXPECT_EQ(left["QuantizeLinear"], 1);
  EXPECT_EQ(left["DequantizeLinear"], 1);
  EXPECT_EQ(left.size(), 5u);
}

TEST(FuseQuantised, ReadersOfTheFirstTermKeepIt) {
  Builder b;
  const ValueId x = b.rounded(b.input({1, 16, 5, 5}), 0.03f);
  const ValueId y = b.rounded(b.op("Conv", {x, b.weights({16, 16, 1, 1}, 0, 0.01f)}), 0.1f);
  const ValueId z = b.rounded(b.op("Add", {y, x}), 0.1f);
  b.graph.add_output("y", b.op("Mul", {y, z}));
  auto left = b.check_codes(2);
  EXPECT_EQ(left["QLinearAdd"], 1);
  EXPECT_EQ(left["QConv"], 1);
}

TEST(FuseQuantised, ProductsAndTables) {
  Builder b;
  const ValueId x = b.rounded(b.input({2, 7, 24}), 0.03f, DType::kI8, -5);
  ValueId y = b.rounded(b.op("MatMul", {x, b.weights({24, 40}, 1, 0.01f)}), 0.05f);
  const ValueId inner = b.rounded(b.op("Erf", {b.op("Div", {y, b.number(1.4f)})}), 0.01f);
  y = b.op("Mul", {y, b.op("Add", {inner, b.number(1)})});
  y = b.rounded(b.op("Mul", {y, b.number(0.5f)}), 0.05f, DType::kI8, 0);
  const ValueId turned =
      b.rounded(b.op("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1}}}), 0.05f, DType::kI8, 0);
  b.graph.add_output("y", b.rounded(b.op("MatMul", {y, turned}), 0.2f));
  auto left = b.check_codes(1);
  EXPECT_EQ(left["QMatMul"], 2);
  EXPECT_EQ(left["QLookUp"], 1);
  EXPECT_EQ(left["Erf"], 0);
}

// Scales that do not match, weights along another axis, a bias of floats: left alone.
TEST(FuseQuantised, LeavesWhatMeansSomethingElse) {
  Builder b;
  const ValueId x = b.rounded(b.input({1, 16, 5, 5}), 0.03f);
  ValueId y = b.op("Conv", {x, b.weights({16, 16, 1, 1}, 1, 0.01f)});
  y = b.op("Conv", {b.rounded(y, 0.1f), b.weights({16, 16, 1, 1}, 0, 0.01f), b.bias(16, 0.5f)});
  y = b.rounded(b.op("MaxPool", {b.rounded(y, 0.1f)}, {{"kernel_shape", std::vector<int64_t>{2, 2}}}), 0.2f);
  b.graph.add_output("y", y);
  auto left = b.check_codes(0.2);
  EXPECT_EQ(left["QConv"], 0);
  EXPECT_EQ(left["QMaxPool"], 0);
}

}  // namespace
}  // namespace bolide
