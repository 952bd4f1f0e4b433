// Each pass on graphs that are built here: what it rewrites, what it must leave, and that values stay what they were.
#include "passes/general/general.h"

#include <gtest/gtest.h>

#include "passes/general/graph_for_test.h"
#include "passes/general/left_over.h"

namespace bolide {
namespace {

using test::Builder;
using test::Left;
using test::NamedAttribute;

TEST(GeneralPasses, ConstantsAndShapesAreFolded) {
  Builder b;
  const ValueId x = b.open_input({2, 3, 4}, {0});
  const ValueId rows = b.op("Gather", {b.op("Shape", {x}), b.integers({1})});
  const ValueId target = b.op("Concat", {b.integers({-1}), rows, b.integers({2, 2})}, {{"axis", int64_t{0}}});
  b.output(b.op("Reshape", {x, target}));
  b.output(b.op("Add", {b.number(1), b.number(2)}));
  EXPECT_EQ(b.check(), (Left{{"Reshape", 1}}));
}

TEST(GeneralPasses, RandomNumbersAreNotFolded) {
  Builder b;
  b.output(b.op("Shape", {b.op("RandomNormal", {}, {{"shape", std::vector<int64_t>{2, 3}}})}));
  b.check();
  Builder c;
  c.output(c.op("RandomUniform", {}, {{"shape", std::vector<int64_t>{2}}, {"seed", 1.0f}}));
  EXPECT_EQ(c.check(), (Left{{"RandomUniform", 1}}));
}

TEST(GeneralPasses, LargeResultsAreNotFolded) {
  Builder b;
  b.output(b.op("ReduceSum", {b.op("Expand", {b.number(1), b.integers({4096, 4096})}), b.integers({0, 1})}));
  EXPECT_GE(b.check().size(), 1u);
}

TEST(GeneralPasses, WhatDoublesIsFoldedOnlyWhileItIsSmall) {
  for (const bool text : {false, true}) {
    Builder b;
    ValueId value = text ? b.graph.add_constant("s", AnyValue(Tensor::strings({1}, {std::string(100, 'x')})))
                         : b.graph.add_constant("s", AnyValue(*Tensor::make(DType::kI8, {1 << 10})));
    for (int i = 0; i < 18; ++i)
      value =
          text ? b.op("StringConcat", {value, value}, {}, 20) : b.op("Concat", {value, value}, {{"axis", int64_t{0}}});
    b.output(value);
    EXPECT_GE(b.check()[text ? "StringConcat" : "Concat"], 2);
  }
}

TEST(GeneralPasses, WeightsAreDecodedOnceAndEmbeddingsByRow) {
  Builder b;
  const auto decoded = [&](const Shape& shape) {
    const ValueId codes = b.graph.add_constant("q", AnyValue(*Tensor::make(DType::kI8, shape)));
    return b.op("Mul", {b.op("Cast", {codes}, {{"to", int64_t{1}}}), b.number(0.1f)});
  };
  b.output(b.op("MatMul", {b.input({2, 3000}), decoded({3000, 2000})}));
  const ValueId ids = b.graph.add_input("ids", {});
  b.values.emplace_back(Tensor::vector(DType::kI64, std::span<const int64_t>(std::vector<int64_t>{1, 7})));
  b.output(b.op("Gather", {decoded({3000, 2000}), ids}));
  b.output(b.op("Gather", {b.op("Mul", {decoded({3000, 2000}), b.weight({3000, 1})}), ids}));
  b.output(b.op("Gather", {b.op("Mul", {decoded({3000, 2000}), b.weight({1, 2000})}), ids}));
  b.output(b.op("Gather", {decoded({3000, 2000}), ids}, {{"axis", int64_t{1}}}));
  Left left = b.check();
  EXPECT_EQ(left["MatMul"] + left["Dense"], 1);
  EXPECT_EQ(left["Gather"], 5);  // the scales by row are gathered, too
  EXPECT_EQ(left["Cast"], 4);
  // What is gathered as whole rows and columns is decoded whole, what has scales by column as well.
  int large = 0;
  for (const NodeId id : b.graph.order()) {
    const ValueId from = b.graph.node(id).in[0];
    large += op_name(b.graph.node(id).op) == "Cast" && b.graph.value(from).kind == ValueKind::kConstant ? 1 : 0;
  }
  EXPECT_EQ(large, 2);
}

TEST(GeneralPasses, IdentitiesGo) {
  Builder b;
  const ValueId x = b.input({2, 3});
  const ValueId same =
      b.op("Reshape", {b.op("Identity", {b.op("Cast", {x}, {{"to", int64_t{1}}})}), b.integers({2, -1})});
  b.output(b.op("Relu", {b.op("Transpose", {same}, {{"perm", std::vector<int64_t>{0, 1}}})}));
  b.output(same);
  EXPECT_EQ(b.check(), (Left{{"Relu", 1}}));
}

TEST(GeneralPasses, CommonNodesAreOne) {
  Builder b;
  const ValueId x = b.input({2, 3});
  b.output(b.op("Add", {b.op("Mul", {b.op("Exp", {x}), b.number(3)}), b.op("Mul", {b.op("Exp", {x}), b.number(3)})}));
  b.output(b.op("Exp", {x}));
  EXPECT_EQ(b.check(), (Left{{"Add", 1}, {"Exp", 1}, {"Mul", 1}}));
}

std::vector<ValueId> normalisation(Builder& b, ValueId x, int64_t channels) {
  return {x, b.weight({channels}), b.weight({channels}), b.weight({channels}), b.weight({channels}, 0.5f, 2)};
}

TEST(GeneralPasses, BatchNormalizationGoesIntoConv) {
  for (const bool inverse : {false, true}) {
    for (const int64_t group : {1, 2}) {
      Builder b;
      const ValueId x = b.input({2, 4, 5, 6});
      const ValueId w = inverse ? b.weight({4, 6 / group, 3, 3}) : b.weight({6, 4 / group, 3, 3});
      const ValueId y = b.op(inverse ? "ConvTranspose" : "Conv", {x, w}, {{"group", group}});
      b.output(b.op("Relu", {b.op("BatchNormalization", normalisation(b, y, 6))}));
      const Left left = b.check();
      EXPECT_EQ(left, inverse ? (Left{{"ConvTranspose", 1}, {"Relu", 1}}) : (Left{{"FusedConv", 1}})) << group;
    }
  }
}

TEST(GeneralPasses, ConvThatOthersReadStays) {
  Builder b;
  const ValueId y = b.op("Conv", {b.input({1, 2, 5, 5}), b.weight({3, 2, 3, 3})});
  b.output(b.op("BatchNormalization", normalisation(b, y, 3)));
  b.output(y);
  EXPECT_EQ(b.check(), (Left{{"BatchNormalization", 1}, {"Conv", 1}}));
}

TEST(GeneralPasses, WhatIsLeftHasAReason) {
  Builder b;
  const ValueId x = b.input({1, 3, 5, 5});
  const ValueId y = b.op("Conv", {x, b.weight({4, 3, 3, 3})});
  b.output(b.op("Relu", {y}));
  b.output(b.op("Sin", {y}));
  const ValueId scale = b.input({3});
  b.output(b.op("BatchNormalization", {x, scale, scale, scale, b.weight({3}, 1, 2)}));
  b.check();
  std::map<std::string, std::string> why;
  for (const LeftOver& one : left_over(b.graph, b.facts())) why[one.op] = one.why;
  EXPECT_EQ(why, (std::map<std::string, std::string>{
                     {"BatchNormalization", "it follows an input or a constant, no Conv or Gemm"},
                     {"Relu", "the result of Conv has 2 readers"}}));
}

TEST(GeneralPasses, BatchNormalizationGoesIntoProducts) {
  for (const bool gemm : {false, true}) {
    Builder b;
    const ValueId x = b.input({3, 4});
    const ValueId y = gemm ? b.op("Gemm", {x, b.weight({5, 4}), b.weight({5})},
                                  {{"transB", int64_t{1}}, {"alpha", 0.5f}, {"beta", 2.0f}})
                           : b.op("MatMul", {x, b.weight({4, 5})});
    b.output(b.op("BatchNormalization", normalisation(b, y, 5)));
    EXPECT_EQ(b.check(), (Left{{"Gemm", 1}}));
  }
}

TEST(GeneralPasses, ConvSumAndActivationAreOne) {
  Builder b;
  const ValueId x = b.input({1, 3, 6, 6});
  const ValueId y = b.op("Conv", {x, b.weight({3, 3, 3, 3})}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  b.output(b.op("Clip", {b.op("Add", {x, y}), b.number(0), b.number(6)}));
  EXPECT_EQ(b.check(), (Left{{"FusedConv", 1}}));
}

TEST(GeneralPasses, SumsThatBroadcastAreNoResidual) {
  Builder b;
  const ValueId y = b.op("Conv", {b.input({1, 2, 4, 4}), b.weight({2, 2, 3, 3})});
  b.output(b.op("Add", {y, b.input({1, 1, 1, 2})}));
  b.output(b.op("Relu", {b.op("Add", {b.op("Conv", {b.input({1, 2, 4, 4}, false), b.weight({2, 2, 3, 3})}),
                                      b.input({3, 2, 2, 2}, false)})}));
  const Left left = b.check();
  EXPECT_EQ(left.at("Conv"), 2);
  EXPECT_EQ(left.at("Add"), 2);
}

TEST(GeneralPasses, ProductsAndBiasesAreGemm) {
  Builder b;
  const ValueId x = b.input({3, 4});
  b.output(b.op("Relu", {b.op("Add", {b.weight({5}), b.op("MatMul", {x, b.weight({4, 5})})})}));
  EXPECT_EQ(b.check(), (Left{{"FusedGemm", 1}}));
  Builder wide;  // the sum has more dims than the product
  wide.output(wide.op("Add", {wide.op("MatMul", {wide.input({1, 4}), wide.weight({4, 5})}), wide.input({3, 5})}));
  EXPECT_EQ(wide.check(), (Left{{"Add", 1}, {"MatMul", 1}}));
}

TEST(GeneralPasses, ProductsBiasesResidualsAndActivationsAreDense) {
  Builder b;
  const ValueId x = b.open_input({2, 3, 8}, {0, 1});
  // Rows of a table of positions, as many as x has.
  const ValueId rows = b.op("Unsqueeze", {b.op("Gather", {b.op("Shape", {x}), b.number_of(1)}), b.integers({0})});
  const ValueId positions = b.op("Slice", {b.weight({1, 9, 8}), b.integers({0}), rows, b.integers({1})});
  const ValueId sum = b.op("Add", {x, positions});
  const ValueId y = b.op("Add", {b.weight({8}), b.op("MatMul", {sum, b.weight({8, 8})})});
  const ValueId z = b.op("Relu", {b.op("Add", {y, x})});
  b.output(b.op("Tanh", {b.op("MatMul", {z, b.weight({8, 5})})}));
  const Left left = b.check();
  EXPECT_EQ(left.at("Dense"), 2);
  EXPECT_EQ(left.at("Add"), 1);
  EXPECT_EQ(left.count("MatMul") + left.count("Relu") + left.count("Tanh"), 0U);

  // What others read stays, and so does a sum that may broadcast.
  Builder shared;
  const ValueId u = shared.open_input({2, 3, 8}, {0, 1}), v = shared.open_input({2, 3, 8}, {0, 1});
  const ValueId product = shared.op("MatMul", {u, shared.weight({8, 8})});
  shared.output(product);
  shared.output(shared.op("Relu", {product}));
  shared.output(shared.op("Add", {shared.op("MatMul", {u, shared.weight({8, 8})}), v}));
  EXPECT_EQ(shared.check(), (Left{{"Add", 1}, {"MatMul", 2}, {"Relu", 1}}));
}

TEST(GeneralPasses, GeluSwishAndHardSwishAreFound) {
  Builder b;
  const ValueId x = b.input({2, 7});
  const ValueId erf = b.op("Add", {b.op("Erf", {b.op("Div", {x, b.number(std::sqrt(2.0f))})}), b.number(1)});
  b.output(b.op("Mul", {b.op("Mul", {x, erf}), b.number(0.5f)}));
  const ValueId y = b.op("Sin", {x});
  const ValueId cube = b.op("Mul", {b.op("Pow", {y, b.number(3)}), b.number(0.044715f)});
  const ValueId tanh = b.op("Tanh", {b.op("Mul", {b.op("Add", {y, cube}), b.number(0.79788456f)})});
  b.output(b.op("Mul", {b.op("Mul", {y, b.number(0.5f)}), b.op("Add", {tanh, b.number(1)})}));
  const ValueId z = b.op("Cos", {x});
  b.output(b.op("Mul", {b.op("Sigmoid", {z}), z}));
  const ValueId six = b.op("Clip", {b.op("Add", {z, b.number(3)}), b.number(0), b.number(6)});
  b.output(b.op("Div", {b.op("Mul", {z, six}), b.number(6)}));
  EXPECT_EQ(b.check(), (Left{{"Cos", 1}, {"Gelu", 2}, {"HardSwish", 1}, {"Sin", 1}, {"Swish", 1}}));
}

TEST(GeneralPasses, OtherConstantsAreNoGelu) {
  Builder b;
  const ValueId x = b.input({2, 7});
  const ValueId erf = b.op("Add", {b.op("Erf", {b.op("Div", {x, b.number(1.5f)})}), b.number(1)});
  b.output(b.op("Mul", {b.op("Mul", {x, erf}), b.number(0.5f)}));
  EXPECT_FALSE(b.check().contains("Gelu"));
}

ValueId layer_norm(Builder& b, ValueId x, int64_t size, bool product, bool centred = true) {
  const std::vector<NamedAttribute> last = {{"axes", std::vector<int64_t>{-1}}};
  const ValueId d = centred ? b.op("Sub", {x, b.op("ReduceMean", {x}, last, 13)}, {}, 13) : x;
  const ValueId square = product ? b.op("Mul", {d, d}) : b.op("Pow", {d, b.number(2)});
  const ValueId root = b.op("Sqrt", {b.op("Add", {b.op("ReduceMean", {square}, last, 13), b.number(1e-5f)})});
  const ValueId y = product ? b.op("Mul", {d, b.op("Reciprocal", {root})}) : b.op("Div", {d, root});
  const ValueId scaled = b.op("Mul", {y, b.weight({size})});
  return centred ? b.op("Add", {b.weight({size}), scaled}) : scaled;
}

TEST(GeneralPasses, LayerNormalizationIsFound) {
  for (const bool product : {false, true}) {
    for (const bool centred : {false, true}) {
      Builder b;
      b.output(layer_norm(b, b.open_input({2, 3, 8}, {0, 1}), 8, product, centred));
      EXPECT_EQ(b.check(), (Left{{centred ? "LayerNormalization" : "RMSNormalization", 1}}));
    }
  }
}

TEST(GeneralPasses, SkipIsPartOfLayerNormalization) {
  Builder b;
  const ValueId x = b.input({2, 3, 8});
  const ValueId y = b.op("Add", {b.op("MatMul", {x, b.weight({8, 8})}), b.weight({8})});
  const ValueId sum = b.op("Add", {y, x});
  b.output(b.op("Add", {layer_norm(b, sum, 8, false), sum}));
  EXPECT_EQ(b.check(), (Left{{"Add", 1}, {"MatMul", 1}, {"SkipLayerNormalization", 1}}));
}

TEST(GeneralPasses, TransposesMeetAndGo) {
  Builder b;
  const std::vector<NamedAttribute> there = {{"perm", std::vector<int64_t>{0, 2, 3, 1}}},
                                    back = {{"perm", std::vector<int64_t>{0, 3, 1, 2}}};
  const ValueId x = b.input({1, 2, 3, 4}), y = b.input({1, 2, 3, 4});
  const ValueId sum = b.op("Add", {b.op("Transpose", {x}, there), b.op("Transpose", {y}, there)});
  b.output(b.op("Transpose", {b.op("Relu", {sum})}, back));
  EXPECT_EQ(b.check(), (Left{{"Add", 1}, {"Relu", 1}}));
}

// As exporters write the attention of BERT; `mask` is added to the scores.
ValueId attention(Builder& b, ValueId x, ValueId mask, bool biased) {
  constexpr int64_t kHidden = 12, kHeads = 3;
  const auto heads = [&](std::vector<int64_t> perm) {
    ValueId y = b.op("MatMul", {x, b.weight({kHidden, kHidden})});
    if (biased) y = b.op("Add", {y, b.weight({kHidden})});
    return b.op("Transpose", {b.op("Reshape", {y, b.integers({0, 0, kHeads, kHidden / kHeads})})},
                {{"perm", std::move(perm)}});
  };
  const ValueId q = heads({0, 2, 1, 3}), k = heads({0, 2, 3, 1}), v = heads({0, 2, 1, 3});
  ValueId scores = b.op("Div", {b.op("MatMul", {q, k}), b.number(2)});
  if (mask != kNoValue) scores = b.op("Add", {scores, mask});
  const ValueId y = b.op("MatMul", {b.op("Softmax", {scores}, {{"axis", int64_t{-1}}}), v});
  const ValueId turned = b.op("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  return b.op("Reshape", {turned, b.integers({0, 0, kHidden})});
}

TEST(GeneralPasses, AttentionIsFound) {
  for (const bool biased : {false, true}) {
    for (const bool masked : {false, true}) {
      Builder b;
      const ValueId x = b.input({2, 5, 12});
      const ValueId mask = masked ? b.input({2, 1, 1, 5}) : kNoValue;
      b.output(attention(b, x, mask, biased));
      EXPECT_EQ(b.check(), (Left{{"Attention", 1}})) << biased << masked;
    }
  }
}

TEST(GeneralPasses, AttentionOfUnknownDimsIsFoundOnlyWhereTheyAgree) {
  Builder b;
  b.output(attention(b, b.open_input({2, 5, 12}, {0, 1}), kNoValue, true));
  EXPECT_EQ(b.check(), (Left{{"Attention", 1}}));
  Builder masked;  // what the mask's dims are is not known
  masked.output(
      attention(masked, masked.open_input({2, 5, 12}, {0, 1}), masked.open_input({2, 1, 1, 5}, {0, 3}), true));
  EXPECT_EQ(masked.check().count("Softmax"), 1u);
}

TEST(GeneralPasses, QuantisedTwiceIsQuantisedOnce) {
  for (const float second : {0.125f, 0.25f}) {
    Builder b;
    const ValueId zero = b.graph.add_constant("z", AnyValue(Tensor::scalar(DType::kU8, uint8_t{100})));
    const ValueId q = b.op("QuantizeLinear", {b.input({2, 9}), b.number(0.125f), zero});
    const ValueId x = b.op("DequantizeLinear", {q, b.number(0.125f), zero});
    const ValueId again = b.op("QuantizeLinear", {x, b.number(second), zero});
    b.output(b.op("DequantizeLinear", {again, b.number(second), zero}));
    EXPECT_EQ(b.check()["QuantizeLinear"], second == 0.125f ? 1 : 2);
  }
}

TEST(GeneralPasses, NodesWithoutInputsOrOutputsAreHarmless) {
  Builder b;
  const ValueId x = b.input({2});
  b.op("Transpose", {b.op("Transpose", {kNoValue})});
  b.op("Reshape", {b.op("Reshape", {kNoValue, b.integers({2})}), b.integers({2})});
  b.output(b.op("Relu", {x}));
  const OpDef* def = find_op("", "Conv", 18);
  b.graph.add_general({def, 18, std::make_shared<Attributes>()}, {kNoValue}, 0, "none", {});
  Workers workers(1);
  EXPECT_TRUE(run_general_passes(b.graph, {}, workers, {"remove_dead"}));
  EXPECT_TRUE(b.graph.verify());
}

TEST(GeneralPasses, UnknownNamesAreRefused) {
  Builder b;
  b.output(b.op("Relu", {b.input({2})}));
  Workers workers(1);
  const auto refused = run_general_passes(b.graph, {}, workers, {"no_such"});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text.find("fold_affine"), std::string::npos);
}

}  // namespace
}  // namespace bolide
