#include <gtest/gtest.h>

#include "ops/run_op_for_test.h"

namespace bolide {
namespace {

Tensor bytes(const Shape& shape, uint8_t value = 1) {
  return tensor_of(DType::kU8, shape, std::vector<uint8_t>(static_cast<size_t>(shape.elements()), value));
}

TEST(Quantise, ScalesThatDoNotFitAreErrors) {
  const Tensor x = floats({2, 4}, std::vector<float>(8, 1));
  const Tensor two = floats({2}, {1, 1}), four = floats({2, 2}, {1, 1, 1, 1});
  EXPECT_TRUE(run_op("QuantizeLinear", 21, {x, two}, {{"axis", int64_t{0}}}));
  EXPECT_FALSE(run_op("QuantizeLinear", 21, {x, two}, {{"axis", int64_t{1}}}));
  EXPECT_FALSE(run_op("QuantizeLinear", 21, {x, two}, {{"axis", int64_t{2}}}));
  EXPECT_TRUE(run_op("QuantizeLinear", 21, {x, four}, {{"axis", int64_t{1}}, {"block_size", int64_t{2}}}));
  EXPECT_FALSE(run_op("QuantizeLinear", 21, {x, four}, {{"axis", int64_t{1}}, {"block_size", int64_t{1}}}));
  EXPECT_FALSE(run_op("QuantizeLinear", 21, {x, four}, {{"axis", int64_t{1}}, {"block_size", int64_t{-2}}}));
  EXPECT_FALSE(run_op("QuantizeLinear", 21, {x, two, bytes({3})}, {{"axis", int64_t{0}}}));
  EXPECT_FALSE(run_op("QuantizeLinear", 21, {x, two}, {{"axis", int64_t{0}}, {"output_dtype", int64_t{1}}}));
  EXPECT_FALSE(run_op("QuantizeLinear", 21, {x, Tensor::strings({}, {"a"})}));
  EXPECT_FALSE(run_op("DequantizeLinear", 21, {x, two}, {{"axis", int64_t{0}}}));
}

TEST(Quantise, ProductsOfWrongShapesAreErrors) {
  EXPECT_TRUE(run_op("MatMulInteger", 10, {bytes({2, 3}), bytes({3, 2})}));
  EXPECT_FALSE(run_op("MatMulInteger", 10, {bytes({2, 3}), bytes({2, 2})}));
  EXPECT_FALSE(run_op("MatMulInteger", 10, {bytes({}), bytes({2, 2})}));
  EXPECT_FALSE(run_op("MatMulInteger", 10, {bytes({2, 3}), bytes({3, 2}), bytes({5})}));
  EXPECT_FALSE(run_op("MatMulInteger", 10, {bytes({2, 2, 3}), bytes({3, 3, 2})}));
}

TEST(Quantise, ConvolutionsOfWrongShapesAreErrors) {
  const Tensor x = bytes({1, 4, 5}), w = bytes({4, 2, 3});
  const auto run = [&](const std::vector<NamedAttribute>& more) {
    std::vector<NamedAttribute> all{{"group", int64_t{2}}};
    for (const NamedAttribute& a : more) {
      if (a.first == "group") all.clear();
      all.push_back(a);
    }
    return run_op("ConvInteger", 10, {x, w}, all).has_value();
  };
  using Integers = std::vector<int64_t>;
  EXPECT_TRUE(run({}));
  EXPECT_FALSE(run({{"group", int64_t{0}}}));
  EXPECT_FALSE(run({{"group", int64_t{1}}}));
  EXPECT_FALSE(run({{"group", INT64_MAX}}));
  EXPECT_FALSE(run({{"strides", Integers{0}}}));
  EXPECT_FALSE(run({{"strides", Integers{1, 1}}}));
  EXPECT_FALSE(run({{"dilations", Integers{INT64_MAX}}}));
  EXPECT_FALSE(run({{"dilations", Integers{3}}}));
  EXPECT_FALSE(run({{"pads", Integers{-1, 0}}}));
  EXPECT_FALSE(run({{"pads", Integers{INT64_MAX, INT64_MAX}}}));
  EXPECT_FALSE(run({{"kernel_shape", Integers{4}}}));
  EXPECT_FALSE(run({{"auto_pad", std::string("SOME")}}));
}

}  // namespace
}  // namespace bolide
