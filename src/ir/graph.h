// Graph: values and the nodes that make them, in an order in which they can run. Weights are references by name into a
// WeightSource, so a graph is small and never holds a checkpoint's bytes.
//
// Thread rules: one owner; const use from several threads is fine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "ir/ops.h"
#include "ir/type.h"
#include "tensor/value.h"

namespace bolide {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;

// Rows [begin, begin + rows) of a named tensor of the checkpoint: leading axes are flattened into rows; the rows of a
// 1-D tensor are its elements.
struct WeightPart {
  std::string tensor;
  int64_t begin = 0;
  int64_t rows = 0;
  friend bool operator==(const WeightPart&, const WeightPart&) = default;
};

// "q.weight[0:576] + k.weight[0:192]"
std::string to_string(std::span<const WeightPart> parts);

enum class ValueKind : uint8_t { kInput, kWeight, kNode, kConstant };

struct Value {
  ValueKind kind = ValueKind::kInput;
  ValueType type;
  std::string name;               // inputs: "ids"; weights and node outputs: empty
  std::vector<WeightPart> parts;  // weights: rows are the concatenation of the parts
  NodeId producer = -1;
  std::shared_ptr<const AnyValue> constant = nullptr;  // kConstant
};

class Graph;
// A graph that a general op runs inside of its node: the branches of If, the bodies of Loop and Scan. Its inputs are
// those that the op gives it, then the captures: values of the graph around it.
struct Body {
  std::string attribute;
  std::shared_ptr<const Graph> graph;
  std::vector<ValueId> captures;
};

struct Node {
  Op op;
  std::vector<ValueId> in, out;
  std::string name;  // "layers.7.attn.qkv": profile, dumps and errors use it
  bool removed = false;
  std::vector<Body> bodies = {};
  std::vector<std::string> from = {};  // general graphs: the nodes of the file whose place it has taken, if it has
};

struct Output {
  std::string name;
  ValueId value = kNoValue;
};

class Graph {
 public:
  // Element type of what a step computes: f32, or bf16 for devices that multiply it faster. Whatever it says, f32 are
  // the residual stream (Embed, Add, the sum of AddRmsNorm, Linear with a residual, MoeFfn), logits and what Sample
  // makes; infer_types has the rules.
  DType activations() const { return activations_; }
  // Types of all values anew. kInvalid: neither f32 nor bf16, or an op that cannot take it; the graph is then as
  // before.
  Result<> set_activations(DType activations);

  ValueId add_input(std::string name, ValueType type);
  // A weight of the given type whose rows are those of `parts`, in order. The same parts give the same value.
  ValueId add_weight(std::vector<WeightPart> parts, ValueType type);
  // Appends a node; output types come from the op's shape function, whose refusal is the error.
  Result<NodeId> add(Op op, std::span<const ValueId> in, std::string name);
  // A general op, whose outputs' types are not known. Inputs may be kNoValue: absent ones.
  NodeId add_general(Generic op, std::vector<ValueId> in, size_t outputs, std::string name, std::vector<Body> bodies);
  ValueId add_constant(std::string name, AnyValue value);
  // The same as add, placed before `position` in the running order.
  Result<NodeId> insert_before(NodeId position, Op op, std::span<const ValueId> in, std::string name);
  // The constant becomes a value without contents, for whoever has what it needs of it.
  void drop_constant(ValueId id);
  void add_output(std::string name, ValueId value);

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const ValueType& type(ValueId id) const { return value(id).type; }
  // Nodes in running order.
  std::span<const NodeId> order() const { return order_; }
  std::span<const Output> outputs() const { return outputs_; }
  size_t value_count() const { return values_.size(); }
  ValueId input(std::string_view name) const;   // kNoValue if there is none
  ValueId output(std::string_view name) const;  // kNoValue if there is none

  // Nodes that read each value (in bodies too), in running order; indexed by ValueId. Outputs of the graph are not in
  // it.
  std::vector<std::vector<NodeId>> users() const;
  void replace_uses(ValueId from, ValueId to);
  void remove(NodeId id);
  // The running order anew; nodes that it leaves out are removed.
  void set_order(std::vector<NodeId> order);
  void set_output(size_t i, ValueId value) { outputs_[i].value = value; }

  // Every input is made before it is used, every type is what the shape function says, names are unique,
  // weights have as many rows as their parts.
  Result<> verify() const;

  // One line a value or node; from_text(to_text()) gives the same graph, renumbered.
  std::string to_text() const;
  static Result<Graph> from_text(std::string_view text);

 private:
  Result<NodeId> make(Op op, std::span<const ValueId> in, std::string name);

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<NodeId> order_;
  std::vector<Output> outputs_;
  DType activations_ = DType::kF32;
  std::unordered_map<std::string, ValueId> weights_;  // by type and parts
};

// Output types of an op for these inputs in a graph with these activations; the error says which input does not fit.
Result<std::vector<ValueType>> infer_types(const Op& op, std::span<const ValueType> in,
                                           DType activations = DType::kF32);

// What one execution must move and compute: each input read once, each output written once.
struct Cost {
  double bytes = 0;
  double flops = 0;
};
// Attention's cost depends on the context lengths, which are contents: `context` is the mean number of cached tokens.
Cost cost_of(const Op& op, std::span<const ValueType> in, std::span<const ValueType> out, const SymbolValues& sizes,
             double context);

}  // namespace bolide
