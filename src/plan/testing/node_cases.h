// Nodes on a GPU against the CPU's reference kernels, with fresh random inputs: each case is a graph of one node, run
// node by node and captured, in f32, f16 and bf16.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/testing/harness.h"
#include "ops/cast.h"
#include "ops/ops.h"
#include "plan/device_network.h"

namespace bolide::test {
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

inline Tensor integers(std::vector<int64_t> values) {
  return Tensor::vector(DType::kI64, std::span<const int64_t>(values));
}

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

inline double relative(const Tensor& got, const Tensor& want) {
  if (got.shape() != want.shape()) return INFINITY;
  const Tensor a = *cast(got, DType::kF64, heap_pool()), b = *cast(want, DType::kF64, heap_pool());
  double difference = 0, length = 0;
  for (size_t i = 0; i < a.as<double>().size(); ++i) {
    const double x = a.as<double>()[i], y = b.as<double>()[i];
    difference += (x - y) * (x - y), length += y * y;
  }
  return length > 0 ? std::sqrt(difference / length) : std::sqrt(difference);
}

inline void check(const Graph& graph, const std::vector<AnyValue>& given, const Case& one);

inline void check(const Case& one) {
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
inline void check_behind(const Tensor& x, const Tensor& w, const Case& one) {
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

inline void check(const Graph& graph, const std::vector<AnyValue>& given, const Case& one) {
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

}  // namespace bolide::test
