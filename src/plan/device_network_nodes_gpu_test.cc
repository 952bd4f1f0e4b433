// The other nodes on a GPU: elements, rows, layouts, images, selections.
#include <gtest/gtest.h>

#include "plan/testing/node_cases.h"

namespace bolide {
namespace {

using namespace test;

TEST_F(Networks, Rows) {
  for (int round = 0; round < 10; ++round) {
    const int64_t columns = round % 2 == 0 ? 4 * draw.upto(300) : draw.upto(500), rows = draw.upto(40);
    check({.domain = "",
           .name = "LayerNormalization",
           .in = {draw.floats({2, rows, columns}), draw.floats({columns}), draw.floats({columns})},
           .is_constant = {false, true, true}});
    check({.domain = "com.microsoft",
           .name = "SkipLayerNormalization",
           .version = 1,
           .in = {draw.floats({2, rows, columns}), draw.floats({2, rows, columns}), draw.floats({columns}),
                  draw.floats({columns}), draw.floats({columns})},
           .is_constant = {false, false, true, true, true}});
    check({.domain = "",
           .name = "Softmax",
           .in = {draw.floats({rows, columns, 3}, 3)},
           .is_constant = {false},
           .attributes = {{"axis", int64_t{round % 3}}}});
    check({.domain = "",
           .name = "ReduceMean",
           .in = {draw.floats({rows, columns, 5})},
           .is_constant = {false},
           .attributes = {{"axes", std::vector<int64_t>{round % 3}}}});
    check({.domain = "", .name = "GlobalAveragePool", .in = {draw.floats({2, columns, 5, 6})}, .is_constant = {false}});
    check({.domain = "",
           .name = round % 2 == 0 ? "ReduceL2" : "ReduceMax",
           .in = {draw.floats({2, 900 + draw.upto(900), draw.upto(70)})},
           .is_constant = {false},
           .attributes = {{"axes", std::vector<int64_t>{round % 4 < 2 ? 1 : 2}}}});
    check({.domain = "",
           .name = "ReduceMean",
           .in = {draw.floats({3, 1000 + draw.upto(900)})},
           .is_constant = {false},
           .attributes = {{"axes", std::vector<int64_t>{1}}}});
    for (const char* pool : {"MaxPool", "AveragePool"})
      check({.domain = "",
             .name = pool,
             .in = {draw.floats({2, draw.upto(40), 13, 11})},
             .is_constant = {false},
             .attributes = {{"kernel_shape", std::vector<int64_t>{3, 2}},
                            {"pads", std::vector<int64_t>{1, 0, 1, 1}},
                            {"strides", std::vector<int64_t>{2, 1}},
                            {"ceil_mode", int64_t{round % 2}}}});
  }
}

TEST_F(Networks, Elements) {
  for (int round = 0; round < 6; ++round) {
    const Shape shape{draw.upto(4), draw.upto(20), draw.upto(30), 8 * draw.upto(5)};
    for (const char* name :
         {"Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Neg", "Abs", "Softplus", "HardSwish", "Elu", "LeakyRelu"})
      check({.domain = "", .name = name, .in = {draw.floats(shape)}, .is_constant = {false}});
    for (const char* name : {"Add", "Sub", "Mul", "Max", "Min", "Div"})
      for (const Shape& other : {shape, Shape{shape[3]}, Shape{shape[1], 1, 1}, Shape{}}) {
        Tensor b = draw.floats(other);
        for (float& x : b.mutate<float>()) x += x < 0 ? -1.f : 1.f;
        check({.domain = "", .name = name, .in = {draw.floats(shape), b}, .is_constant = {false, false}});
      }
    check({.domain = "com.microsoft",
           .name = "BiasGelu",
           .version = 1,
           .in = {draw.floats(shape), draw.floats({shape[3]})},
           .is_constant = {false, true}});
  }
}

TEST_F(Networks, Layouts) {
  for (int round = 0; round < 10; ++round) {
    const Shape shape{draw.upto(4), draw.upto(9), draw.upto(40), draw.upto(20)};
    const Tensor x = draw.floats(shape);
    std::vector<int64_t> perm{0, 1, 2, 3};
    std::shuffle(perm.begin(), perm.end(), draw.random);
    check({.domain = "", .name = "Transpose", .in = {x}, .is_constant = {false}, .attributes = {{"perm", perm}}});
    check({.domain = "",
           .name = "Concat",
           .in = {x, x},
           .is_constant = {false, false},
           .attributes = {{"axis", int64_t{round % 4}}}});
    check({.domain = "",
           .name = "Slice",
           .in = {x, integers({-1, 0}), integers({-1000, 3}), integers({2, 3}), integers({-2, 1})},
           .is_constant = {false, true, true, true, true}});
    check({.domain = "",
           .name = "Slice",
           .version = 9,
           .in = {x},
           .is_constant = {false},
           .attributes = {{"starts", std::vector<int64_t>{0, -3}},
                          {"ends", std::vector<int64_t>{1000, 1000}},
                          {"axes", std::vector<int64_t>{1, 2}}}});
    check({.domain = "",
           .name = "Expand",
           .in = {draw.floats({shape[1], 1, shape[3]}), integers({2, 1, shape[2], 1})},
           .is_constant = {false, true}});
    check({.domain = "", .name = "Reshape", .in = {x, integers({0, -1})}, .is_constant = {false, true}});
    check({.domain = "",
           .name = "Gather",
           .in = {x, draw.indices({3, 2}, shape[round % 4])},
           .is_constant = {false, false},
           .attributes = {{"axis", int64_t{round % 4}}}});
  }
}

TEST_F(Networks, MoreElements) {
  for (int round = 0; round < 4; ++round) {
    const Shape shape{draw.upto(4), draw.upto(20), draw.upto(30)};
    for (const char* name : {"Atan", "Sinh", "Cosh", "Asinh", "Selu", "Celu", "ThresholdedRelu", "Softsign", "Mish",
                             "Shrink", "Sin", "Cos", "Floor", "Sign"})
      check({.domain = "", .name = name, .version = 22, .in = {draw.rounded(shape)}, .is_constant = {false}});
    for (const char* name : {"Asin", "Acos", "Atanh"})
      check(
          {.domain = "", .name = name, .version = 22, .in = {draw.rounded(shape, 0.2f, 0.7f)}, .is_constant = {false}});
    check({.domain = "",
           .name = "Mean",
           .in = {draw.floats(shape), draw.floats({shape[2]}), draw.floats(shape)},
           .is_constant = {false, false, false}});
    check({.domain = "", .name = "Abs", .in = {draw.indices(shape, 1000)}, .is_constant = {false}});
    Tensor numbers = draw.floats(shape);
    numbers.mutate<float>()[0] = NAN, numbers.mutate<float>().back() = -INFINITY;
    check({.domain = "", .name = "IsNaN", .in = {numbers}, .is_constant = {false}});
    check({.domain = "", .name = "IsInf", .version = 20, .in = {numbers}, .is_constant = {false}});
    check({.domain = "", .name = "Dropout", .version = 13, .in = {draw.floats(shape)}, .is_constant = {false}});
  }
}

TEST_F(Networks, Channels) {
  for (int round = 0; round < 12; ++round) {
    const int64_t groups = draw.upto(4), C = groups * (round % 2 == 0 ? 8 * draw.upto(4) : draw.upto(9)),
                  H = round == 3 ? 80 : draw.upto(30), W = round == 3 ? 90 : draw.upto(30);
    const Tensor x = draw.floats({draw.upto(3), C, H, W}, 2);
    Tensor variance = draw.floats({C});
    for (float& v : variance.mutate<float>()) v = 0.5f + v * v;
    check({.domain = "",
           .name = "BatchNormalization",
           .version = 15,
           .in = {x, draw.floats({C}), draw.floats({C}), draw.floats({C}), variance},
           .is_constant = {false, true, true, true, true},
           .then = round % 2 == 0 ? "Relu" : ""});
    if (H * W > 16)
      check({.domain = "",
             .name = "InstanceNormalization",
             .in = {x, draw.floats({C}), draw.floats({C})},
             .is_constant = {false, true, true}});
    for (const int64_t version : {18, 21}) {
      if (H * W <= 16) break;  // their deviation may be less than f16 tells apart
      const int64_t parameters = version == 18 ? groups : C;
      check({.domain = "",
             .name = "GroupNormalization",
             .version = version,
             .in = {x, draw.floats({parameters}), draw.floats({parameters})},
             .is_constant = {false, true, true},
             .attributes = {{"num_groups", groups}}});
    }
    check({.domain = "",
           .name = "LRN",
           .in = {x},
           .is_constant = {false},
           .attributes = {{"size", draw.upto(7)}, {"alpha", 0.2f}}});
  }
}

TEST_F(Networks, Images) {
  for (int round = 0; round < 10; ++round) {
    const Shape shape{draw.upto(3), draw.upto(9), 1 + draw.upto(13), draw.upto(14)};
    const Tensor x = draw.floats(shape);
    const std::vector<float> scales{1, 1, 0.4f + 0.3f * static_cast<float>(draw.upto(8)), 1.5f};
    for (const char* mode : {"nearest", "linear", "cubic"})
      for (const char* coordinates : {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"}) {
        check({.domain = "",
               .name = "Resize",
               .version = 18,
               .in = {x, Tensor(), Tensor::vector(DType::kF32, std::span<const float>(scales))},
               .is_constant = {false, true, true},
               .attributes = {{"mode", std::string(mode)},
                              {"antialias", int64_t{round % 3 == 0 && mode[0] != 'n'}},
                              {"coordinate_transformation_mode", std::string(coordinates)}}});
        check({.domain = "",
               .name = "Resize",
               .version = 18,
               .in = {x, Tensor(), Tensor(), integers({draw.upto(9), shape[1], draw.upto(30), draw.upto(30)})},
               .is_constant = {false, true, true, true},
               .attributes = {{"mode", std::string(mode)},
                              {"coordinate_transformation_mode", std::string(coordinates)}}});
      }
    for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
      const bool filled = mode[0] == 'c' && round % 2 == 0;
      check({.domain = "",
             .name = "Pad",
             .version = 19,
             .in = {x, integers({1, 0, draw.upto(5) - 1, draw.upto(8), 0, draw.upto(3), -1, draw.upto(8)}),
                    filled ? draw.floats({}) : Tensor()},
             .is_constant = {false, true, true},
             .attributes = {{"mode", std::string(mode)}}});
    }
    check({.domain = "", .name = "Tile", .in = {x, integers({2, 1, draw.upto(3), 2})}, .is_constant = {false, true}});
    for (const char* mode : {"DCR", "CRD"})
      check({.domain = "",
             .name = "DepthToSpace",
             .in = {draw.floats({2, 4 * shape[1], shape[2], shape[3]})},
             .is_constant = {false},
             .attributes = {{"blocksize", int64_t{2}}, {"mode", std::string(mode)}}});
    check({.domain = "",
           .name = "SpaceToDepth",
           .in = {draw.floats({2, shape[1], 3 * shape[2], 3 * shape[3]})},
           .is_constant = {false},
           .attributes = {{"blocksize", int64_t{3}}}});
  }
}

TEST_F(Networks, Selections) {
  for (int round = 0; round < 10; ++round) {
    const Shape shape{draw.upto(4), draw.upto(round == 4 ? 9000 : 40), draw.upto(5)};
    const Tensor x = draw.rounded(shape);
    for (const char* name : {"ArgMax", "ArgMin"})
      check({.domain = "",
             .name = name,
             .in = {x},
             .is_constant = {false},
             .attributes = {{"axis", int64_t{round % 3}},
                            {"keepdims", int64_t{round % 2}},
                            {"select_last_index", int64_t{round / 2 % 2}}}});
    for (const int output : {0, 1})
      check({.domain = "",
             .name = "TopK",
             .in = {x, integers({draw.upto(shape[round % 3])})},
             .is_constant = {false, true},
             .attributes = {{"axis", int64_t{round % 3}}, {"largest", int64_t{round % 2}}},
             .outputs = 2,
             .output = output});
    Shape at = shape;
    at[round % 3] = draw.upto(7);
    check({.domain = "",
           .name = "GatherElements",
           .in = {x, draw.indices(at, shape[round % 3])},
           .is_constant = {false, false},
           .attributes = {{"axis", int64_t{round % 3}}}});
  }
}

// An index beyond its axis is an error that names the node, as on the CPU; the next run is none.
TEST_F(Networks, IndexBeyondItsAxis) {
  Graph graph;
  const ValueId table = graph.add_constant("table", draw.floats({5, 8})), ids = graph.add_input("ids", {});
  const NodeId node = graph.add_general({find_op("", "Gather", 13), 13, std::make_shared<const Attributes>()},
                                        {table, ids}, 1, "look up", {});
  graph.add_output("y", graph.node(node).out[0]);
  auto network = DeviceNetwork::make(graph, *testing::tested_device(), {});
  ASSERT_TRUE(network);
  for (const int64_t index : {4, 5, -5, -6, 0}) {
    const auto got = (*network)->run({AnyValue(integers({index}))}, heap_pool(), nullptr, {});
    EXPECT_EQ(got.has_value(), index >= -5 && index < 5) << index;
    if (!got) {
      EXPECT_NE(got.error().text.find("look up"), std::string::npos) << got.error().text;
    }
  }
}

}  // namespace
}  // namespace bolide
