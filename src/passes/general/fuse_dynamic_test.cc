// fuse_dynamic on graphs that are built here: what is left of them, and that values stay what they were.
#include <gtest/gtest.h>

#include "passes/general/graph_for_test.h"

namespace bolide {
namespace {

using test::Left;

class Builder : public test::Builder {
 public:
  ValueId codes(const Shape& shape, DType dtype) {
    auto made = Tensor::make(dtype, shape);
    for (int64_t i = 0; i < made->elements(); ++i) made->mutable_data()[i] = static_cast<std::byte>(random_());
    return graph.add_constant("q", AnyValue(*made));
  }
  ValueId code(DType dtype, int value) {
    return graph.add_constant("q", AnyValue(dtype == DType::kU8 ? Tensor::scalar(dtype, static_cast<uint8_t>(value))
                                                                : Tensor::scalar(dtype, static_cast<int8_t>(value))));
  }
  // Sums of integers of `name` with weights, `term` (if any) added, and what they mean.
  ValueId scaled(std::string_view name, ValueId x, ValueId w, ValueId w_scale, ValueId w_zero,
                 ValueId term = kNoValue) {
    const ValueId q = op("DynamicQuantizeLinear", {x}, {}, 11, 3);
    const std::vector<ValueId> range = graph.node(graph.value(q).producer).out;
    ValueId sums = op(name, {q, w, range[2], w_zero}, {}, 10);
    if (term != kNoValue) sums = op("Add", {sums, term});
    return op("Mul", {op("Cast", {sums}, {{"to", int64_t{1}}}), op("Mul", {range[1], w_scale})});
  }

 private:
  std::mt19937 random_{std::random_device{}()};
};

TEST(FuseDynamic, ConvolutionsOfCodesAreOfFloats) {
  for (const DType dtype : {DType::kU8, DType::kI8})
    for (const bool has_term : {false, true}) {
      Builder b;
      const ValueId term = b.graph.add_constant("t", AnyValue(*Tensor::make(DType::kI32, {1, 6, 1, 1})));
      const ValueId y = b.scaled("ConvInteger", b.input({2, 4, 7, 5}), b.codes({6, 4, 3, 3}, dtype), b.number(0.01f),
                                 b.code(dtype, 3), has_term ? term : kNoValue);
      b.output(b.op("Relu", {y}));
      Left left = b.check(1e-5);
      EXPECT_EQ(left["ConvInteger"], 0);
      EXPECT_EQ(left["FusedConv"] + left["Conv"], 1);
      EXPECT_EQ(left["DequantizeLinear"], 1);
    }
}

TEST(FuseDynamic, ConvolutionsWithSeveralScalesStay) {
  Builder b;
  b.output(b.scaled("ConvInteger", b.input({1, 2, 5, 5}), b.codes({3, 2, 3, 3}, DType::kI8), b.weight({3, 1, 1}),
                    b.code(DType::kI8, 0)));
  EXPECT_EQ(b.check(1e-5)["ConvInteger"], 1);
}

TEST(FuseDynamic, ProductsTakeTheirBias) {
  Builder b;
  const ValueId y = b.scaled("MatMulInteger", b.input({3, 8}), b.codes({8, 5}, DType::kI8), b.weight({5}, 0.01f, 0.02f),
                             b.code(DType::kI8, 0));
  b.output(b.op("Add", {y, b.weight({5})}));
  EXPECT_EQ(b.check(1e-5), (Left{{"DynamicQuantizeLinear", 1}, {"MatMulIntegerToFloat", 1}}));
}

TEST(FuseDynamic, ProductsWithIntegersAddedStay) {
  Builder b;
  const ValueId term = b.graph.add_constant("t", AnyValue(*Tensor::make(DType::kI32, {5})));
  b.output(b.scaled("MatMulInteger", b.input({3, 8}), b.codes({8, 5}, DType::kI8), b.number(0.01f),
                    b.code(DType::kI8, 0), term));
  EXPECT_EQ(b.check(1e-5)["MatMulInteger"], 1);
}

}  // namespace
}  // namespace bolide
