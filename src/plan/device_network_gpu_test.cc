// Nodes on a GPU against the CPU's reference kernels, with fresh random inputs: each case is a graph of one node, run
// node by node and captured, in f32, f16 and bf16.
#include "plan/device_network.h"

#include <gtest/gtest.h>

#include <cmath>
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

void check(const Case& one) {
  Device* const device = testing::tested_device();
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
  NodeId node =
      graph.add_general({def, one.version, std::make_shared<const Attributes>(attributes)}, in, 1, "node", {});
  if (!one.then.empty())
    node = graph.add_general({find_op("", one.then, 17), 17, std::make_shared<const Attributes>()},
                             {graph.node(node).out[0]}, 1, "then", {});
  graph.add_output("y", graph.node(node).out[0]);
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
    const int64_t D = round % 3 == 0 ? draw.upto(90) : 8 * draw.upto(14),
                  Dv = round % 3 == 0 ? draw.upto(90) : 8 * draw.upto(14);
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
