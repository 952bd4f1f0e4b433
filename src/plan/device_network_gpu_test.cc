// Nodes on a GPU against the CPU's reference kernels, with fresh random inputs: each case is a graph of one node, run
// node by node and captured, in f32, f16 and bf16.
#include "plan/device_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "kernels/testing/harness.h"
#include "ops/cast.h"
#include "ops/ops.h"

namespace bolide {
namespace {

struct Draw {
  std::mt19937_64 random{std::random_device{}()};
  Tensor floats(const Shape& shape, float scale = 1) {
    Tensor tensor = *Tensor::make(DType::kF32, shape);
    std::normal_distribution<float> normal(0, scale);
    for (float& x : tensor.mutate<float>()) x = normal(random);
    return tensor;
  }
  Tensor indices(const Shape& shape, int64_t below) {
    Tensor tensor = *Tensor::make(DType::kI64, shape);
    for (int64_t& x : tensor.mutate<int64_t>())
      x = below - 1 - static_cast<int64_t>(random() % static_cast<uint64_t>(2 * below));
    return tensor;
  }
  // Numbers that f16 and bf16 have, so that what is found, not how it rounds, is compared.
  Tensor rounded(const Shape& shape, float scale = 1, float most = 100) {
    Tensor tensor = floats(shape, scale);
    for (float& x : tensor.mutate<float>()) x = std::clamp(std::round(x * 64) / 64, -most, most);
    return *cast(*cast(tensor, DType::kBF16, heap_pool()), DType::kF32, heap_pool());
  }
  int64_t upto(int64_t most) { return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)); }
};

Tensor integers(std::vector<int64_t> values) { return Tensor::vector(DType::kI64, std::span<const int64_t>(values)); }

struct Case {
  std::string_view domain, name;
  int64_t version = 17;
  std::vector<Tensor> in;         // kNone: absent
  std::vector<bool> is_constant;  // else an input of the graph
  std::vector<std::pair<std::string, Attributes::Any>> attributes = {};
  double f32 = 2e-5;           // relative L2
  std::string_view then = "";  // an activation behind it
  int outputs = 1, output = 0;
};

double relative(const Tensor& got, const Tensor& want) {
  if (got.shape() != want.shape()) return INFINITY;
  const Tensor a = *cast(got, DType::kF64, heap_pool()), b = *cast(want, DType::kF64, heap_pool());
  double difference = 0, length = 0;
  for (size_t i = 0; i < a.as<double>().size(); ++i) {
    const double x = a.as<double>()[i], y = b.as<double>()[i];
    difference += (x - y) * (x - y), length += y * y;
  }
  return length > 0 ? std::sqrt(difference / length) : std::sqrt(difference);
}

void check(const Graph& graph, const std::vector<AnyValue>& given, const Case& one);

void check(const Case& one) {
  Graph graph;
  std::vector<ValueId> in;
  std::vector<AnyValue> given;
  Attributes attributes;
  for (const auto& [name, value] : one.attributes) attributes.set(name, value);
  for (size_t i = 0; i < one.in.size(); ++i) {
    if (!one.in[i]) {
      in.push_back(kNoValue);
    } else if (one.is_constant[i]) {
      in.push_back(graph.add_constant("c" + std::to_string(i), one.in[i]));
    } else {
      in.push_back(graph.add_input("x" + std::to_string(i), {}));
      given.emplace_back(one.in[i]);
    }
  }
  const OpDef* def = find_op(one.domain, one.name, one.version);
  ASSERT_NE(def, nullptr) << one.name;
  NodeId node = graph.add_general({def, one.version, std::make_shared<const Attributes>(attributes)}, in, one.outputs,
                                  "node", {});
  if (!one.then.empty())
    node = graph.add_general({find_op("", one.then, 17), 17, std::make_shared<const Attributes>()},
                             {graph.node(node).out[0]}, 1, "then", {});
  graph.add_output("y", graph.node(node).out[one.then.empty() ? static_cast<size_t>(one.output) : 0]);
  check(graph, given, one);
}

// `one` behind a convolution of x, whose output is its first input; its others are constants.
void check_behind(const Tensor& x, const Tensor& w, const Case& one) {
  Graph graph;
  Attributes attributes;
  for (const auto& [name, value] : one.attributes) attributes.set(name, value);
  const auto none = std::make_shared<const Attributes>();
  const NodeId conv = graph.add_general({find_op("", "Conv", 17), 17, none},
                                        {graph.add_input("x", {}), graph.add_constant("w", w)}, 1, "conv", {});
  std::vector<ValueId> in{graph.node(conv).out[0]};
  for (size_t i = 1; i < one.in.size(); ++i)
    in.push_back(one.in[i] ? graph.add_constant("c" + std::to_string(i), one.in[i]) : kNoValue);
  const NodeId node = graph.add_general(
      {find_op(one.domain, one.name, one.version), one.version, std::make_shared<const Attributes>(attributes)}, in, 1,
      "node", {});
  graph.add_output("y", graph.node(node).out[0]);
  check(graph, {AnyValue(x)}, one);
}

void check(const Graph& graph, const std::vector<AnyValue>& given, const Case& one) {
  Device* const device = testing::tested_device();
  Workers workers(2);
  const auto reference = Interpreter::make(graph);
  ASSERT_TRUE(reference) << reference.error().text;
  const auto want = reference->run(given, workers);
  ASSERT_TRUE(want) << one.name << ": " << want.error().text;
  for (const DType compute : {DType::kF32, DType::kF16, DType::kBF16}) {
    const double tolerance = compute == DType::kF32 ? one.f32 : compute == DType::kF16 ? 3e-3 : 2e-2;
    auto network = DeviceNetwork::make(graph, *device, {.compute = compute, .skip_passes = {"all"}});
    ASSERT_TRUE(network) << network.error().text;
    for (int run = 0; run < 4; ++run) {
      const auto got = (*network)->run(given, heap_pool(), nullptr, {});
      ASSERT_TRUE(got) << one.name << ": " << got.error().text;
      EXPECT_LE(relative(*(*got)[0].tensor(), *(*want)[0].tensor()), tolerance)
          << one.name << " in " << to_string(compute) << ", run " << run;
    }
    EXPECT_TRUE((*network)->was_captured()) << one.name;
    for (const Placement& placement : (*network)->placements())
      EXPECT_NE(placement.where, Placement::Where::kHost) << one.name << ": " << placement.node;
  }
}

class Networks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::tested_device() == nullptr) GTEST_SKIP() << "no GPU";
  }
  Draw draw;
};

TEST_F(Networks, Convolutions) {
  for (int round = 0; round < 40; ++round) {
    const int64_t C = round % 4 == 0 ? draw.upto(4) : 8 * draw.upto(12),
                  M = draw.upto(2) == 1 ? 8 * draw.upto(16) : draw.upto(70);
    const int64_t R = draw.upto(4), S = draw.upto(4), stride = draw.upto(2), dilation = draw.upto(2);
    const int64_t H = R * dilation + draw.upto(20), W = S * dilation + draw.upto(20), pad = draw.upto(3) - 1;
    const float scale = 1 / std::sqrt(static_cast<float>(C * R * S));
    check({.domain = "",
           .name = "Conv",
           .in = {draw.floats({draw.upto(3), C, H, W}), draw.floats({M, C, R, S}, scale), draw.floats({M})},
           .is_constant = {false, true, true},
           .attributes = {{"strides", std::vector<int64_t>{stride, stride}},
                          {"dilations", std::vector<int64_t>{dilation, dilation}},
                          {"pads", std::vector<int64_t>{pad, pad, pad, pad}}},
           .then = round % 3 == 0   ? "Relu"
                   : round % 3 == 1 ? "Sigmoid"
                                    : ""});
  }
}

TEST_F(Networks, ConvolutionsOfGroups) {
  for (int round = 0; round < 12; ++round) {
    const int64_t groups = round % 2 == 0 ? 8 * draw.upto(6) : draw.upto(5), own = round % 2 == 0 ? 1 : draw.upto(5);
    const int64_t rows = round % 2 == 0 ? 1 : draw.upto(3);
    check({.domain = "",
           .name = "Conv",
           .in = {draw.floats({2, groups * own, 9, 11}), draw.floats({groups * rows, own, 3, 3}, 0.3f), Tensor()},
           .is_constant = {false, true, true},
           .attributes = {{"group", groups}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}}});
  }
}

TEST_F(Networks, Products) {
  for (int round = 0; round < 40; ++round) {
    const int64_t M = draw.upto(300), K = draw.upto(2) == 1 ? 8 * draw.upto(60) : draw.upto(200),
                  N = draw.upto(2) == 1 ? 8 * draw.upto(40) : draw.upto(200);
    const float scale = 1 / std::sqrt(static_cast<float>(K));
    check({.domain = "",
           .name = "MatMul",
           .in = {draw.floats({2, M, K}), draw.floats({K, N}, scale)},
           .is_constant = {false, round % 3 != 0},
           .then = round % 2 == 0 ? "Relu" : ""});
    check({.domain = "",
           .name = "Gemm",
           .in = {draw.floats({M, K}), draw.floats({N, K}, scale), draw.floats({N})},
           .is_constant = {false, true, true},
           .attributes = {{"transB", int64_t{1}}}});
    check({.domain = "",
           .name = "MatMul",
           .in = {draw.floats({3, M, K}), draw.floats({3, K, N}, scale)},
           .is_constant = {false, false}});
  }
}

TEST_F(Networks, Attention) {
  for (int round = 0; round < 16; ++round) {
    const int64_t B = draw.upto(3), H = 2 * draw.upto(3), G = round % 2 == 0 ? H : H / 2, S = draw.upto(150),
                  L = draw.upto(200);
    const int64_t D = round == 6       ? 200
                      : round % 3 == 0 ? draw.upto(90)
                                       : 8 * draw.upto(14),
                  Dv = round == 6       ? 250
                       : round % 3 == 0 ? draw.upto(90)
                                        : 8 * draw.upto(14);
    const bool bias = round % 2 == 0;
    check({.domain = "",
           .name = "Attention",
           .version = 23,
           .in = {draw.floats({B, H, S, D}), draw.floats({B, G, L, D}), draw.floats({B, G, L, Dv}),
                  bias ? draw.floats(round % 4 == 0 ? Shape{B, 1, 1, L} : Shape{S, L}) : Tensor()},
           .is_constant = {false, false, false, false},
           .attributes = {{"is_causal", int64_t{round % 4 == 1}}, {"softcap", round % 5 == 0 ? 20.f : 0.f}}});
  }
}

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

TEST_F(Networks, TransposedConvolutions) {
  for (int round = 0; round < 20; ++round) {
    const int64_t groups = round % 3 == 0 ? draw.upto(4) : 1, own = round % 2 == 0 ? 8 * draw.upto(4) : draw.upto(20),
                  channels = round % 4 < 2 ? 8 * draw.upto(6) : draw.upto(30);
    const int64_t R = draw.upto(4), S = draw.upto(4), stride = draw.upto(3), dilation = draw.upto(2);
    const int64_t pad = std::min(draw.upto(2) - 1, std::min(R, S) - 1);
    check({.domain = "",
           .name = "ConvTranspose",
           .in = {draw.floats({draw.upto(3), groups * channels, 1 + draw.upto(12), draw.upto(12)}),
                  draw.floats({groups * channels, own, R, S}, 1 / std::sqrt(static_cast<float>(channels))),
                  round % 5 == 0 ? Tensor() : draw.floats({groups * own})},
           .is_constant = {false, true, true},
           .attributes = {{"group", groups},
                          {"strides", std::vector<int64_t>{stride, draw.upto(2)}},
                          {"dilations", std::vector<int64_t>{dilation, 1}},
                          {"output_padding", std::vector<int64_t>{stride - 1, 0}},
                          {"pads", std::vector<int64_t>{pad, 0, pad, pad}}},
           .then = round % 2 == 0 ? "Relu" : ""});
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

// What a convolution makes lies with its channels last: the same ops behind one.
TEST_F(Networks, BehindAConvolution) {
  for (int round = 0; round < 6; ++round) {
    const int64_t M = round % 2 == 0 ? 8 * draw.upto(6) : draw.upto(30);
    const Tensor x = draw.floats({2, 16, 12 + round, 40}), w = draw.floats({M, 16, 3, 3}, 0.1f);
    const auto floats = [&](int64_t n) { return draw.floats({n}); };
    const std::vector<float> scales{1, 1, 2, 1.5f};
    check_behind(x, w, {.domain = "", .name = "InstanceNormalization", .in = {Tensor(), floats(M), floats(M)}});
    check_behind(x, w, {.domain = "", .name = "LRN", .in = {Tensor()}, .attributes = {{"size", int64_t{5}}}});
    for (const char* mode : {"nearest", "linear", "cubic"})
      check_behind(x, w,
                   {.domain = "",
                    .name = "Resize",
                    .in = {Tensor(), Tensor(), Tensor::vector(DType::kF32, std::span<const float>(scales))},
                    .attributes = {{"mode", std::string(mode)}}});
    for (const char* mode : {"constant", "reflect", "edge", "wrap"})
      check_behind(x, w,
                   {.domain = "",
                    .name = "Pad",
                    .version = 19,
                    .in = {Tensor(), integers({0, 1, 2, 0, 0, 0, -1, 3})},
                    .attributes = {{"mode", std::string(mode)}}});
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

// A network of a convolution and a product, with random constants.
Graph small_network(Draw& draw) {
  Graph graph;
  const auto none = std::make_shared<const Attributes>();
  const NodeId conv = graph.add_general(
      {find_op("", "Conv", 17), 17, none},
      {graph.add_input("x", {}), graph.add_constant("w", draw.floats({32, 16, 3, 3}, 0.1f))}, 1, "conv", {});
  const NodeId flat =
      graph.add_general({find_op("", "Flatten", 13), 13, none}, {graph.node(conv).out[0]}, 1, "flat", {});
  const NodeId product = graph.add_general(
      {find_op("", "MatMul", 13), 13, none},
      {graph.node(flat).out[0], graph.add_constant("b", draw.floats({32 * 36, 24}, 0.03f))}, 1, "product", {});
  graph.add_output("y", graph.node(product).out[0]);
  return graph;
}

// Sessions of one network have its constants in common, and what one measured is known to the other, and to the next
// process.
TEST_F(Networks, WhatSessionsShare) {
  const Graph graph = small_network(draw);
  const std::vector<AnyValue> given{AnyValue(draw.floats({2, 16, 8, 8}))};
  const auto file = std::filesystem::path(::testing::TempDir()) / "device_network_timings.json";
  std::filesystem::remove(file);
  Device& device = *testing::tested_device();
  const auto shared = std::make_shared<DeviceShared>(device, file);
  size_t bytes = 0;
  std::vector<Tensor> results;
  for (int session = 0; session < 3; ++session) {
    auto network =
        DeviceNetwork::make(graph, device, {.compute = DType::kF16, .skip_passes = without_cpu_passes({})}, shared);
    ASSERT_TRUE(network);
    const auto got = (*network)->run(given, heap_pool(), nullptr, {});
    ASSERT_TRUE(got) << got.error().text;
    results.push_back(*(*got)[0].tensor());
    if (session == 0) bytes = (*network)->constant_bytes();
    EXPECT_EQ((*network)->constant_bytes(), bytes);
  }
  for (const Tensor& result : results) EXPECT_LE(relative(result, results[0]), 1e-3);
  EXPECT_GT(bytes, 0u);
  EXPECT_TRUE(std::filesystem::exists(file));
  const auto again = std::make_shared<DeviceShared>(device, file);
  auto network =
      DeviceNetwork::make(graph, device, {.compute = DType::kF16, .skip_passes = without_cpu_passes({})}, again);
  ASSERT_TRUE(network);
  ASSERT_TRUE((*network)->run(given, heap_pool(), nullptr, {}));
  EXPECT_TRUE(again->timings()->take_fresh().empty());
}

// What is on the device before and after a run, on runs node by node and captured ones.
TEST_F(Networks, ArraysThatStay) {
  const Graph graph = small_network(draw);
  auto network = DeviceNetwork::make(graph, *testing::tested_device(), {.skip_passes = without_cpu_passes({})});
  ASSERT_TRUE(network);
  std::vector<DeviceTensor> kept;
  std::vector<Tensor> want;
  for (int run = 0; run < 5; ++run) {
    const Tensor x = draw.floats({2, 16, 8, 8});
    const auto plain = (*network)->run({AnyValue(x)}, heap_pool(), nullptr, {});
    ASSERT_TRUE(plain);
    want.push_back(*(*plain)[0].tensor());
    DeviceArrays arrays;
    const auto there = (*network)->to_device(x);
    ASSERT_TRUE(there);
    arrays.inputs = {*there}, arrays.stays = {true};
    const auto got = (*network)->run({AnyValue(Tensor::over({}, nullptr, DType::kF32, x.shape()))}, heap_pool(),
                                     nullptr, {}, &arrays);
    ASSERT_TRUE(got) << got.error().text;
    ASSERT_TRUE(arrays.outputs[0]);
    kept.push_back(arrays.outputs[0]);
  }
  EXPECT_TRUE((*network)->was_captured());
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto host = (*network)->to_host(kept[i], heap_pool());
    ASSERT_TRUE(host);
    EXPECT_LE(relative(*host, want[i]), 1e-6) << i;
  }
}

// Products of f32 are as exact as sums of f32 are; those of tf32 only where they are asked for.
TEST_F(Networks, ProductsOfF32) {
  for (int round = 0; round < 8; ++round) {
    const bool large = round == 0;  // too large for products without tensor cores to be as fast
    const int64_t M = large ? 512 : draw.upto(300), N = large ? 384 : draw.upto(200),
                  K = large ? 1024 : 4 * draw.upto(400);
    const Tensor x = draw.floats({M, K}), w = draw.floats({K, N});
    Graph graph;
    const NodeId node = graph.add_general({find_op("", "MatMul", 13), 13, std::make_shared<const Attributes>()},
                                          {graph.add_input("x", {}), graph.add_constant("w", w)}, 1, "node", {});
    graph.add_output("y", graph.node(node).out[0]);
    Tensor want = *Tensor::make(DType::kF64, {M, N});
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < K; ++k)
          sum += static_cast<double>(x.as<float>()[static_cast<size_t>(m * K + k)]) *
                 static_cast<double>(w.as<float>()[static_cast<size_t>(k * N + n)]);
        want.mutate<double>()[static_cast<size_t>(m * N + n)] = sum;
      }
    double errors[2] = {};
    for (const bool tf32 : {false, true}) {
      auto network = DeviceNetwork::make(graph, *testing::tested_device(), {.tf32 = tf32, .skip_passes = {"all"}});
      ASSERT_TRUE(network);
      const auto got = (*network)->run({AnyValue(x)}, heap_pool(), nullptr, {});
      ASSERT_TRUE(got) << got.error().text;
      errors[tf32 ? 1 : 0] = relative(*(*got)[0].tensor(), want);
    }
    EXPECT_LE(errors[0], 3e-6) << M << " " << N << " " << K;
    EXPECT_LE(errors[1], 2e-3);
    if (large) {
      EXPECT_GT(errors[1], 20 * errors[0]);  // it is another arithmetic
    }
  }
}

}  // namespace
}  // namespace bolide
