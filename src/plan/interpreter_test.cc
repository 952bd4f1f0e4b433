// What becomes of constants that prepared nodes hold, and of those that bodies capture.
#include "plan/interpreter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <new>

#include "ops/ops.h"
#include "tensor/caching_pool.h"

namespace bolide {
namespace {

Tensor ramp(const Shape& shape) {
  Tensor tensor = *Tensor::make(DType::kF32, shape);
  float value = 0;
  for (float& one : tensor.mutate<float>()) one = value = value + 0.25f;
  return tensor;
}

ValueId add(Graph& graph, std::string_view name, std::vector<ValueId> in, std::vector<Body> bodies = {}) {
  const Generic op{find_op("", name, 20), 20, std::make_shared<Attributes>()};
  return graph.node(graph.add_general(op, std::move(in), 1, std::string(name), std::move(bodies))).out[0];
}

class InterpreterTest : public ::testing::Test {
 protected:
  std::vector<AnyValue> run(const Interpreter& interpreter, std::vector<AnyValue> inputs) {
    auto results = interpreter.run(std::move(inputs), workers);
    EXPECT_TRUE(results) << (results ? "" : results.error().text);
    return results ? *results : std::vector<AnyValue>();
  }
  Workers workers{2};
  std::unique_ptr<Device> device = *make_cpu_device(2, std::nullopt);
  PrepareSettings settings{.device = device->info(), .workers = workers};
};

TEST_F(InterpreterTest, WhatIsPackedIsDropped) {
  if (device->info().isa < Isa::kAvx2) GTEST_SKIP() << "nothing is packed on this processor";
  for (const bool read_elsewhere : {false, true}) {
    Graph graph;
    const ValueId x = graph.add_input("x", {});
    const ValueId w = graph.add_constant("w", AnyValue(ramp({5, 4})));
    const ValueId unread = graph.add_constant("unread", AnyValue(ramp({3})));
    graph.add_output("y", add(graph, "MatMul", {x, w}));
    graph.add_output("z", add(graph, "MatMul", {x, w}));
    if (read_elsewhere) graph.add_output("r", add(graph, "Relu", {w}));
    auto plain = Interpreter::make(graph);
    ASSERT_TRUE(plain);
    const auto expected = run(*plain, {AnyValue(ramp({3, 5}))});
    auto interpreter = Interpreter::make_and_drop(graph, settings);
    ASSERT_TRUE(interpreter);
    EXPECT_EQ(graph.value(w).constant->has_value(), read_elsewhere);
    EXPECT_FALSE(graph.value(unread).constant->has_value());
    const auto got = run(*interpreter, {AnyValue(ramp({3, 5}))});
    ASSERT_EQ(got.size(), expected.size());
    for (size_t o = 0; o < got.size(); ++o)
      for (size_t i = 0; i < expected[o].tensor()->as<float>().size(); ++i)
        EXPECT_NEAR(got[o].tensor()->as<float>()[i], expected[o].tensor()->as<float>()[i], 1e-4);
  }
}

TEST_F(InterpreterTest, ConstantsThatBodiesCaptureArePackedThere) {
  if (device->info().isa < Isa::kAvx2) GTEST_SKIP() << "nothing is packed on this processor";
  Graph graph;
  const ValueId condition = graph.add_input("c", {});
  const ValueId x = graph.add_input("x", {});
  const ValueId w = graph.add_constant("w", AnyValue(ramp({5, 4})));
  std::vector<Body> bodies;
  NodeId product = -1;
  for (const char* branch : {"then_branch", "else_branch"}) {
    Graph body;
    const ValueId own_x = body.add_input("x", {}), own_w = body.add_input("w", {});
    const ValueId y = add(body, "MatMul", {own_x, own_w});
    product = body.value(y).producer;
    body.add_output("y", y);
    bodies.push_back({branch, std::make_shared<const Graph>(std::move(body)), {x, w}});
  }
  const std::shared_ptr<const Graph> inside = bodies[0].graph;
  graph.add_output("y", add(graph, "If", {condition}, std::move(bodies)));
  auto interpreter = Interpreter::make_and_drop(graph, settings);
  ASSERT_TRUE(interpreter) << interpreter.error().text;
  ASSERT_TRUE(graph.value(w).constant->has_value());
  ASSERT_NE(interpreter->prepared(*inside, product), nullptr);
  EXPECT_GT(interpreter->prepared(*inside, product)->bytes(), 0u);
  Tensor yes = *Tensor::make(DType::kBool, {});
  yes.mutate<uint8_t>()[0] = 1;
  const auto got = run(*interpreter, {AnyValue(yes), AnyValue(ramp({1, 5}))});
  ASSERT_EQ(got.size(), 1u);
  float sum = 0;
  for (int k = 0; k < 5; ++k) sum += 0.25f * static_cast<float>(k + 1) * 0.25f * static_cast<float>(4 * k + 1);
  EXPECT_NEAR(got[0].tensor()->as<float>()[0], sum, 1e-4);
}

Tensor numbers(std::initializer_list<int64_t> list) {
  return Tensor::vector<int64_t>(DType::kI64, std::span(list.begin(), list.size()));
}

// Small inputs that ask for much: all are refused before anything is allocated, by the node's name and the output.
TEST_F(InterpreterTest, WhatIsLargerThanTheLimitIsRefused) {
  struct Case {
    const char* op;
    std::vector<AnyValue> inputs;
    const char* says;
  };
  constexpr int64_t kLong = 1 << 26;
  Tensor scales = Tensor::vector<float>(DType::kF32, std::vector<float>{float{kLong}});
  const std::vector<Case> cases = {
      {"ConstantOfShape", {numbers({kLong, 80})}, "output 0: f32[67108864, 80]: 20.00 GiB more"},
      {"Expand", {ramp({1}), numbers({kLong, 80})}, "20.00 GiB more"},
      {"Tile", {ramp({2, 2}), numbers({1 << 13, 1 << 13})}, "output 0: f32[16384, 16384]: 1.00 GiB more"},
      {"Resize", {ramp({2}), AnyValue(), AnyValue(scales)}, "output 0: f32[134217728]"},
      {"Range", {numbers({0}).reshaped({}), numbers({kLong}).reshaped({}), numbers({1}).reshaped({})}, "i64[67108864]"},
      {"Pad", {ramp({2}), numbers({kLong, kLong})}, "output 0: f32[134217730]"},
      {"OneHot", {numbers({1, 2, 3}), numbers({kLong}), ramp({2})}, "f32[3, 67108864]"},
      {"CenterCropPad", {ramp({1}), numbers({kLong})}, "f32[67108864]"},
  };
  for (const Case& one : cases) {
    for (const bool prepare : {false, true}) {
      Graph graph;
      std::vector<ValueId> in;
      std::vector<AnyValue> given;
      for (const AnyValue& value : one.inputs) {
        in.push_back(value.has_value() ? graph.add_input("x", {}) : kNoValue);
        if (value.has_value()) given.push_back(value);
      }
      graph.add_output("y", add(graph, one.op, in));
      const auto interpreter = Interpreter::make(graph, prepare ? &settings : nullptr);
      ASSERT_TRUE(interpreter);
      CachingPool pool;
      pool.set_limit(100 << 20);
      const auto results = interpreter->run(given, workers, pool);
      ASSERT_FALSE(results) << one.op;
      EXPECT_EQ(results.error().code, Code::kOutOfMemory) << results.error().text;
      EXPECT_TRUE(results.error().text.starts_with(fmt::format("node {0} ({0}): ", one.op))) << results.error().text;
      EXPECT_NE(results.error().text.find(one.says), std::string::npos) << results.error().text;
      EXPECT_EQ(pool.bytes_in_use(), 0u);
    }
  }
}

TEST_F(InterpreterTest, TextsThatGrowAreRefused) {
  Graph graph;
  ValueId value = graph.add_input("x", {});
  for (int i = 0; i < 40; ++i) value = add(graph, "StringConcat", {value, value});
  graph.add_output("y", value);
  const auto interpreter = Interpreter::make(graph);
  ASSERT_TRUE(interpreter);
  const Tensor x = Tensor::strings({2}, {"some", "text"});
  const auto results = interpreter->run({x}, workers, heap_pool(), nullptr, {}, 1 << 20);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Code::kOutOfMemory);
  EXPECT_TRUE(results.error().text.starts_with("node StringConcat (StringConcat): ")) << results.error().text;
  EXPECT_NE(results.error().text.find("of texts are beyond the limit of 1.00 MiB"), std::string::npos)
      << results.error().text;
}

TEST_F(InterpreterTest, WhatAKernelThrowsForWantOfMemoryIsAnError) {
  const auto throws = [](RunContext& c) -> Result<> {
    c.workers().run(8, [](int64_t chunk, int) {
      if (chunk == 5) throw std::bad_alloc();
    });
    return {};
  };
  const OpDef row{.domain = "own", .name = "Throws", .run = throws};
  Graph graph;
  const ValueId x = graph.add_input("x", {});
  const Generic op{&row, 1, std::make_shared<Attributes>()};
  graph.add_output("y", graph.node(graph.add_general(op, {x}, 1, "greedy", {})).out[0]);
  const auto interpreter = Interpreter::make(graph);
  ASSERT_TRUE(interpreter);
  for (int i = 0; i < 3; ++i) {
    const auto results = interpreter->run({AnyValue(ramp({1}))}, workers);
    ASSERT_FALSE(results);
    EXPECT_EQ(results.error().code, Code::kOutOfMemory);
    EXPECT_TRUE(results.error().text.starts_with("node greedy (Throws): no memory")) << results.error().text;
  }
}

}  // namespace
}  // namespace bolide
