// Rewriter: a general graph while a pass changes it: who makes and who reads each value, what is known of it, and nodes
// put in the place of others. What nothing reads any more goes with its last reader.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "ir/op_def.h"
#include "passes/general/facts.h"
#include "passes/pass.h"

namespace bolide {

using NamedAttributes = std::vector<std::pair<std::string, Attributes::Any>>;

class Rewriter {
 public:
  Rewriter(Graph& graph, FactsTable& facts);

  // Of the graph as it was when the pass began; check `alive`.
  const std::vector<NodeId>& order() const { return order_; }
  bool alive(NodeId id) const { return id >= 0 && !graph_.node(id).removed; }
  const Graph& graph() const { return graph_; }
  const Node& node(NodeId id) const { return graph_.node(id); }
  const Generic& op(NodeId id) const { return std::get<Generic>(graph_.node(id).op); }
  const Attributes& attributes(NodeId id) const { return *op(id).attributes; }
  const Facts& facts(ValueId value) const { return facts_[value]; }
  FactsTable& table() { return facts_; }

  bool is(NodeId id, std::string_view name, std::string_view domain = "") const;
  // The node of this op whose first output is `value`; -1: it is made otherwise.
  NodeId made_by(ValueId value, std::string_view name, std::string_view domain = "") const;
  ValueId in(NodeId id, size_t i) const {
    const Node& n = graph_.node(id);
    return i < n.in.size() ? n.in[i] : kNoValue;
  }
  ValueId out(NodeId id) const { return graph_.node(id).out[0]; }
  // Nodes that read the value, and the graph's outputs that are it, one each.
  int uses(ValueId value) const;
  // The one node that reads the value; -1: there are more, or an output is it.
  NodeId only_user(ValueId value) const;
  const std::vector<NodeId>& users(ValueId value) const { return users_[static_cast<size_t>(value)]; }
  // The element of a constant of numbers that has one; nullopt: it is none.
  std::optional<double> scalar(ValueId value) const;
  // The same if its rank is at most that of `with`: a broadcast with it changes no shape.
  std::optional<double> scalar_beside(ValueId value, ValueId with) const;
  const Tensor* constant(ValueId value) const { return facts_[value].constant; }
  int64_t integer(NodeId id, std::string_view name, int64_t otherwise) const;
  Numbers integers(NodeId id, std::string_view name) const;

  ValueId add_constant(std::string name, Tensor tensor);
  // A node that runs right before `place`. The row must exist.
  NodeId emit(NodeId place, std::string_view domain, std::string_view name, int64_t version, std::vector<ValueId> in,
              NamedAttributes attributes = {}, size_t outputs = 1);
  NodeId emit_like(NodeId place, Generic op, std::vector<ValueId> in, size_t outputs = 1);
  // All readers of `from` read `to`; the maker of `from` goes if nothing reads it any more.
  void replace(ValueId from, ValueId to);
  void set_input(NodeId id, size_t i, ValueId value);
  // A constant that nothing reads any more loses its elements, so that what is made of weights is not in memory beside
  // them. At the end of a pass all such constants do.
  void drop_if_unread(ValueId constant);
  void set_bodies(NodeId id, std::vector<Body> bodies) { graph_.node(id).bodies = std::move(bodies); }
  // Removes the node if nothing reads its outputs, then what made its inputs likewise.
  int remove_if_dead(NodeId id);
  void finish();

 private:
  void drop_use(ValueId value, NodeId user);
  void add_use(ValueId value, NodeId user);
  bool reads(NodeId id, ValueId value) const;

  Graph& graph_;
  FactsTable& facts_;
  std::vector<NodeId> order_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::vector<size_t>> outputs_;  // of the graph, by value
  std::unordered_map<NodeId, std::vector<NodeId>> before_;
  int made_ = 0;
  NodeId heir_ = -1;  // what has just been emitted: nodes that go because it takes their place are its `from`
};

// Calls `rewrite` with the graph, then with the bodies of its nodes, and returns the sum of what it counts.
Result<int> rewrite_all(Graph& graph, const PassContext& context, FunctionRef<Result<int>(Rewriter&)> rewrite);

// The factors of a product or the terms of a sum of `value`, as deep as it is made of nodes of that op (at most `most`
// leaves): x * (y * c) is {x, y, c}. Division by a constant counts as a factor that is `inverse`.
struct Leaf {
  ValueId value = kNoValue;
  bool inverse = false;
};
std::vector<Leaf> leaves_of(const Rewriter& r, ValueId value, std::string_view op, size_t most = 8);

inline bool near(double a, double b) {
  return a == b || (a - b < 1e-6 * (b < 0 ? -b : b) && b - a < 1e-6 * (b < 0 ? -b : b));
}

}  // namespace bolide
