// Graphs of general ops that tests of passes build, run before and after them and compare.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/workers.h"
#include "ops/ops.h"
#include "passes/general/general.h"

namespace bolide::test {

using Left = std::map<std::string, int>;  // operators of a graph, by name
using NamedAttribute = std::pair<std::string, Attributes::Any>;

// A graph in the making, with random constants and the values of its inputs.
class Builder {
 public:
  ValueId input(const Shape& shape, bool declared = true) {
    const ValueId id = graph.add_input("x" + std::to_string(values.size()), {});
    values.emplace_back(random(shape));
    Facts facts;
    facts.dtype = DType::kF32;
    facts.dims = Numbers(shape.span().begin(), shape.span().end());
    facts_.push_back(declared ? facts : Facts{});
    return id;
  }
  // Dims of no declared size.
  ValueId open_input(const Shape& shape, const std::vector<size_t>& open) {
    const ValueId id = input(shape);
    for (const size_t axis : open) (*facts_.back().dims)[axis] = Facts::kUnknown;
    return id;
  }
  ValueId weight(const Shape& shape, float low = -1, float high = 1) {
    return graph.add_constant("w", AnyValue(random(shape, low, high)));
  }
  ValueId number(float value) { return graph.add_constant("c", AnyValue(Tensor::scalar(DType::kF32, value))); }
  ValueId integers(std::vector<int64_t> list) {
    return graph.add_constant("i", AnyValue(Tensor::vector(DType::kI64, std::span<const int64_t>(list))));
  }
  ValueId number_of(int64_t value) { return graph.add_constant("i", AnyValue(Tensor::scalar(DType::kI64, value))); }
  ValueId op(std::string_view name, std::vector<ValueId> in, std::vector<NamedAttribute> attributes = {},
             int64_t version = 18, size_t outputs = 1) {
    const OpDef* def = find_op("", name, version);
    EXPECT_NE(def, nullptr) << name;
    auto kept = std::make_shared<Attributes>();
    for (auto& [key, value] : attributes) kept->set(key, value);
    const NodeId id = graph.add_general({def, version, kept}, std::move(in), outputs,
                                        std::string(name) + std::to_string(nodes_++), {});
    return graph.node(id).out[0];
  }
  void output(ValueId value) { graph.add_output("y" + std::to_string(graph.outputs().size()), value); }

  // Runs all passes; the outputs must stay what they are. What is left.
  Left check(double tolerance = 1e-5, const std::set<std::string>& skip = {"channels_last"}) {
    Workers workers(1);
    const std::vector<Tensor> before = run(workers);
    const auto records = run_general_passes(graph, facts_, workers, skip);
    EXPECT_TRUE(records) << (records ? "" : records.error().text);
    EXPECT_TRUE(graph.verify());
    const std::vector<Tensor> after = run(workers);
    EXPECT_EQ(before.size(), after.size());
    for (size_t k = 0; k < before.size() && k < after.size(); ++k) {
      EXPECT_EQ(before[k].shape(), after[k].shape());
      EXPECT_EQ(before[k].dtype(), after[k].dtype());
      if (before[k].dtype() != DType::kF32 || before[k].shape() != after[k].shape()) continue;
      double most = 0;
      for (const float value : before[k].as<float>()) most = std::max(most, std::abs(static_cast<double>(value)));
      for (size_t i = 0; i < before[k].as<float>().size(); ++i)
        EXPECT_NEAR(before[k].as<float>()[i], after[k].as<float>()[i], tolerance * most) << k << " " << i;
    }
    return left();
  }

  Left left() const {
    Left count;
    for (const NodeId id : graph.order()) ++count[std::string(op_name(graph.node(id).op))];
    return count;
  }

  Graph graph;
  std::vector<AnyValue> values;

  const std::vector<Facts>& facts() const { return facts_; }

 protected:
  Tensor random(const Shape& shape, float low = -1, float high = 1) {
    auto made = Tensor::make(DType::kF32, shape);
    std::uniform_real_distribution<float> draw(low, high);
    for (float& value : made->mutate<float>()) value = draw(generator_);
    return *made;
  }
  // Node by node: no interpreter below plan.
  std::vector<Tensor> run(Workers& workers) {
    std::vector<AnyValue> all(graph.value_count());
    size_t next = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Value& value = graph.value(static_cast<ValueId>(i));
      if (value.kind == ValueKind::kInput) all[i] = values[next++];
      if (value.kind == ValueKind::kConstant) all[i] = *value.constant;
    }
    const auto no_body = [](std::string_view, std::vector<AnyValue>) -> Result<std::vector<AnyValue>> {
      return error(Code::kNotFound, "no body");
    };
    for (const NodeId id : graph.order()) {
      const Node& node = graph.node(id);
      const auto& op = std::get<Generic>(node.op);
      std::vector<const AnyValue*> in;
      for (const ValueId value : node.in) in.push_back(value == kNoValue ? nullptr : &all[static_cast<size_t>(value)]);
      std::vector<AnyValue> out(node.out.size());
      RunContext context(*op.attributes, op.version, in, out, workers, heap_pool(), no_body);
      const auto done = op.def->run(context);
      EXPECT_TRUE(done) << node.name << ": " << (done ? "" : done.error().text);
      for (size_t i = 0; i < out.size(); ++i) all[static_cast<size_t>(node.out[i])] = out[i];
    }
    std::vector<Tensor> results;
    for (const Output& output : graph.outputs()) {
      const Tensor* tensor = all[static_cast<size_t>(output.value)].tensor();
      EXPECT_NE(tensor, nullptr);
      if (tensor != nullptr) results.push_back(*tensor);
    }
    return results;
  }

  std::vector<Facts> facts_;
  std::mt19937 generator_{std::random_device{}()};
  int nodes_ = 0;
};

}  // namespace bolide::test
