// channels_last on graphs that are built here: which transposes are left, and that values stay what they were.
#include <gtest/gtest.h>

#include "passes/general/graph_for_test.h"

namespace bolide {
namespace {

using test::Builder;
using test::Left;

std::vector<test::NamedAttribute> around(int64_t pad) { return {{"pads", std::vector<int64_t>(4, pad)}}; }

TEST(ChannelsLastPass, ResidualBlocksNeedTwoTransposes) {
  Builder b;
  const ValueId x = b.op("Relu", {b.op("Conv", {b.input({2, 3, 9, 8}), b.weight({6, 3, 3, 3})}, around(1))});
  const ValueId pooled = b.op("MaxPool", {x}, {{"kernel_shape", std::vector<int64_t>{2, 2}}});
  const ValueId y = b.op("Conv", {pooled, b.weight({6, 6, 3, 3}), b.weight({6})}, around(1));
  b.output(b.op("Relu", {b.op("Add", {y, pooled})}));
  EXPECT_EQ(b.check(1e-5, {}), (Left{{"ChannelsLastConv", 2}, {"ChannelsLastMaxPool", 1}, {"Transpose", 2}}));
}

TEST(ChannelsLastPass, ClassifiersEndInRowsOfChannels) {
  for (const bool reshape : {false, true}) {
    Builder b;
    const ValueId y = b.op("GlobalAveragePool", {b.op("Conv", {b.input({2, 3, 5, 5}), b.weight({6, 3, 3, 3})})});
    b.output(reshape ? b.op("Reshape", {y, b.integers({0, -1})}) : b.op("Flatten", {y}));
    EXPECT_EQ(b.check(1e-5, {}), (Left{{"ChannelsLastConv", 1},
                                       {"ChannelsLastGlobalAveragePool", 1},
                                       {reshape ? "Reshape" : "Flatten", 1},
                                       {"Transpose", 1}}));
  }
}

TEST(ChannelsLastPass, WhatLiesBetweenIsTurnedToo) {
  Builder b;
  const ValueId x = b.op("Conv", {b.input({2, 3, 6, 8}), b.weight({8, 3, 1, 1})});
  const ValueId part = b.op("Slice", {x, b.integers({2}), b.integers({6}), b.integers({1})});
  const ValueId shifted = b.op("Add", {b.op("Mul", {part, b.weight({4, 1, 1})}), b.weight({1, 4, 6, 1})});
  const ValueId squashed =
      b.op("Softmax", {b.op("Concat", {shifted, x}, {{"axis", int64_t{1}}})}, {{"axis", int64_t{1}}});
  const ValueId grown =
      b.op("Resize",
           {squashed, kNoValue,
            b.graph.add_constant(
                "s", AnyValue(Tensor::vector(DType::kF32, std::span<const float>(std::vector<float>{1, 1, 2, 1.5f}))))},
           {{"mode", std::string("nearest")}});
  const ValueId wide = b.op("Pad", {grown, b.integers({0, 1, 0, 2, 0, 0, 3, 1})});
  b.output(b.op("ReduceMean", {wide, b.integers({-1, 1})}));
  b.output(b.op("ReduceMean", {wide, b.integers({2, 3})}, {{"keepdims", int64_t{0}}}));
  const Left left = b.check(1e-5, {});
  EXPECT_EQ(left.at("Transpose"), 2) << "one in, one out";
}

TEST(ChannelsLastPass, SplitsOfChannels) {
  Builder b;
  const ValueId x = b.op("Conv", {b.input({1, 3, 4, 4}), b.weight({4, 3, 1, 1})});
  const ValueId first = b.op("Split", {x}, {{"axis", int64_t{-3}}}, 13, 2);
  const NodeId split = b.graph.value(first).producer;
  b.output(b.op("Conv", {b.op("Sigmoid", {first}), b.weight({2, 2, 1, 1})}));
  b.output(b.graph.node(split).out[1]);
  EXPECT_EQ(b.check(1e-5, {}).at("Transpose"), 3);
}

TEST(ChannelsLastPass, ConvolutionsReadPartsWhereTheyLie) {
  for (const bool other : {false, true}) {  // reads a part too
    Builder b;
    const ValueId x = b.op("Relu", {b.op("Conv", {b.input({2, 3, 6, 5}), b.weight({20, 3, 1, 1})})});
    const ValueId first = b.op("Split", {x, b.integers({13, 7})}, {{"axis", int64_t{1}}}, 18, 2);
    const ValueId second = b.graph.node(b.graph.value(first).producer).out[1];
    const ValueId y = b.op("Relu", {b.op("Conv", {second, b.weight({7, 7, 3, 3})}, around(1))});
    const ValueId all = b.op("Concat", {first, second, y, second}, {{"axis", int64_t{1}}});
    b.output(b.op("Conv", {all, b.weight({9, 34, 1, 1}), b.weight({9})}));
    if (other) b.output(b.op("Tanh", {first}));
    const Left left = b.check(1e-5, {});
    EXPECT_EQ(left.at("ChannelsLastJoinedConv"), other ? 1 : 2);
    EXPECT_EQ(left.count("Split"), other ? 1u : 0u);
    EXPECT_EQ(left.count("Concat"), 0u);
  }
}

TEST(ChannelsLastPass, ConcatsThatOthersReadStay) {
  Builder b;
  const ValueId x = b.op("Conv", {b.input({1, 3, 6, 5}), b.weight({8, 3, 1, 1})});
  const ValueId all = b.op("Concat", {x, b.op("Tanh", {x})}, {{"axis", int64_t{1}}});
  b.output(b.op("Conv", {all, b.weight({4, 16, 3, 3})}));  // reads each pixel nine times
  const ValueId rows = b.op("Concat", {x, x}, {{"axis", int64_t{2}}});
  b.output(b.op("Conv", {rows, b.weight({4, 8, 1, 1})}));
  const Left left = b.check(1e-5, {});
  EXPECT_EQ(left.at("Concat"), 2);
  EXPECT_EQ(left.count("ChannelsLastJoinedConv"), 0u);
}

TEST(ChannelsLastPass, ShapesAreReadWithoutATranspose) {
  Builder b;
  const ValueId x = b.op("Relu", {b.op("Conv", {b.open_input({2, 3, 6, 5}, {0}), b.weight({8, 3, 1, 1})})});
  b.output(b.op("Shape", {x}));
  b.output(b.op("ReduceMean", {x, b.integers({2, 3})}, {{"keepdims", int64_t{0}}}));
  EXPECT_EQ(b.check(1e-5, {}).at("Transpose"), 1);
}

TEST(ChannelsLastPass, TransposesOfOthersMeetOurs) {
  Builder b;
  const ValueId x = b.op("Conv", {b.input({1, 3, 4, 5}), b.weight({4, 3, 1, 1})});
  b.output(b.op("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}}));
  b.output(b.op("Transpose", {x}, {{"perm", std::vector<int64_t>{3, 1, 0, 2}}}));
  EXPECT_EQ(b.check(1e-5, {}), (Left{{"ChannelsLastConv", 1}, {"Transpose", 2}}));
}

TEST(ChannelsLastPass, UnknownRanksAndTypesStay) {
  Builder b;
  b.output(b.op("Conv", {b.input({1, 2, 4, 4}, false), b.weight({2, 2, 3, 3})}));
  b.output(b.op("Conv", {b.input({1, 2, 4, 4}), b.input({2, 2, 3, 3})}));
  b.output(b.op("MaxPool", {b.input({1, 2, 4, 4})}, {{"kernel_shape", std::vector<int64_t>{2, 2}}}));
  EXPECT_EQ(b.check(1e-5, {}), (Left{{"Conv", 2}, {"MaxPool", 1}}));
}

}  // namespace
}  // namespace bolide
