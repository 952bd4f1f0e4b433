// Whole networks on a GPU: what sessions share, arrays that stay there.
#include <gtest/gtest.h>

#include <filesystem>

#include "plan/testing/node_cases.h"

namespace bolide {
namespace {

using namespace test;

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

}  // namespace
}  // namespace bolide
