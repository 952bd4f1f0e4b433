#include "ir/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/op_def.h"

namespace bolide {
namespace {

// A weight has numbers alone for dims, and its parts have its rows.
Result<> check_parts(const Value& weight) {
  const ValueType& type = weight.type;
  const auto refuse = [&](std::string_view what) {
    return error(Code::kInternal,
                 fmt::format("graph: weight {} {}: {}", to_string(type), to_string(std::span(weight.parts)), what));
  };
  if (weight.parts.empty() || type.dims.empty() || !type.is_static()) return refuse("has no parts or no fixed size");
  const size_t axes = type.dims.size() == 1 ? 1 : type.dims.size() - 1;
  int64_t rows = 1, sum = 0;
  for (size_t i = 0; i < axes; ++i)
    if (__builtin_mul_overflow(rows, type.dims[i].factor, &rows)) return refuse("is too large");
  for (const WeightPart& part : weight.parts)
    if (part.begin < 0 || part.rows < 0 || __builtin_add_overflow(sum, part.rows, &sum))
      return refuse("has wrong rows");
  if (rows != sum) return refuse(fmt::format("its parts have {} rows, its type {}", sum, rows));
  return {};
}

}  // namespace

std::string_view op_name(const Op& op) {
  if (const auto* generic = std::get_if<Generic>(&op)) return generic->def->name;
  return std::visit([](const auto& o) { return std::decay_t<decltype(o)>::kName; }, op);
}

Result<> Graph::set_activations(DType activations) {
  if (activations != DType::kF32 && activations != DType::kBF16)
    return error(Code::kInvalid, fmt::format("activations of type {}: expected f32 or bf16", to_string(activations)));
  if (activations == activations_) return {};
  Graph changed = *this;
  changed.activations_ = activations;
  for (const NodeId id : order_) {
    const Node& n = changed.node(id);
    std::vector<ValueType> in;
    for (const ValueId value : n.in) in.push_back(changed.type(value));
    auto inferred = infer_types(n.op, in, activations).context(fmt::format("{} ({})", n.name, op_name(n.op)));
    BOLIDE_TRY(const std::vector<ValueType> out, std::move(inferred));
    BOLIDE_CHECK(out.size() == n.out.size(), "{} makes {} values", n.name, out.size());
    for (size_t i = 0; i < out.size(); ++i) changed.values_[static_cast<size_t>(n.out[i])].type = out[i];
  }
  *this = std::move(changed);
  return {};
}

ValueId Graph::add_input(std::string name, ValueType type) {
  values_.push_back({ValueKind::kInput, std::move(type), std::move(name), {}, -1});
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::add_weight(std::vector<WeightPart> parts, ValueType type) {
  const auto [it, added] = weights_.try_emplace(bolide::to_string(type) + ' ' + bolide::to_string(std::span(parts)),
                                                static_cast<ValueId>(values_.size()));
  if (added) values_.push_back({ValueKind::kWeight, std::move(type), "", std::move(parts), -1});
  return it->second;
}

Result<NodeId> Graph::make(Op op, std::span<const ValueId> in, std::string name) {
  std::vector<ValueType> types;
  for (const ValueId id : in) {
    BOLIDE_CHECK(id >= 0 && static_cast<size_t>(id) < values_.size(), "{}: input value {}", name, id);
    types.push_back(type(id));
  }
  auto out_types = infer_types(op, types, activations_).context(fmt::format("{} ({})", name, op_name(op)));
  BOLIDE_TRY(std::vector<ValueType> outs, std::move(out_types));
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node{std::move(op), {in.begin(), in.end()}, {}, std::move(name)};
  for (ValueType& out : outs) {
    values_.push_back({ValueKind::kNode, std::move(out), "", {}, id});
    node.out.push_back(static_cast<ValueId>(values_.size() - 1));
  }
  nodes_.push_back(std::move(node));
  return id;
}

Result<NodeId> Graph::add(Op op, std::span<const ValueId> in, std::string name) {
  BOLIDE_TRY(const NodeId id, make(std::move(op), in, std::move(name)));
  order_.push_back(id);
  return id;
}

NodeId Graph::add_general(Generic op, std::vector<ValueId> in, size_t outputs, std::string name,
                          std::vector<Body> bodies) {
  const auto id = static_cast<NodeId>(nodes_.size());
  Node node{std::move(op), std::move(in), {}, std::move(name), false, std::move(bodies)};
  for (size_t i = 0; i < outputs; ++i) {
    node.out.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back({ValueKind::kNode, {}, "", {}, id});
  }
  nodes_.push_back(std::move(node));
  order_.push_back(id);
  return id;
}

ValueId Graph::add_constant(std::string name, AnyValue value) {
  values_.push_back({ValueKind::kConstant, {}, std::move(name), {}, -1, std::make_shared<AnyValue>(std::move(value))});
  return static_cast<ValueId>(values_.size() - 1);
}

void Graph::drop_constant(ValueId id) {
  static const auto kNothing = std::make_shared<const AnyValue>();
  BOLIDE_CHECK(value(id).kind == ValueKind::kConstant, "value {} is no constant", id);
  values_[static_cast<size_t>(id)].constant = kNothing;
}

Result<NodeId> Graph::insert_before(NodeId position, Op op, std::span<const ValueId> in, std::string name) {
  BOLIDE_TRY(const NodeId id, make(std::move(op), in, std::move(name)));
  const auto at = std::find(order_.begin(), order_.end(), position);
  BOLIDE_CHECK(at != order_.end(), "node {} is not in the graph", position);
  order_.insert(at, id);
  return id;
}

void Graph::add_output(std::string name, ValueId value) { outputs_.push_back({std::move(name), value}); }

ValueId Graph::input(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].kind == ValueKind::kInput && values_[i].name == name) return static_cast<ValueId>(i);
  return kNoValue;
}

ValueId Graph::output(std::string_view name) const {
  for (const Output& output : outputs_)
    if (output.name == name) return output.value;
  return kNoValue;
}

std::vector<std::vector<NodeId>> Graph::users() const {
  std::vector<std::vector<NodeId>> users(values_.size());
  for (const NodeId id : order_) {
    const auto use = [&](ValueId value) {
      if (value == kNoValue) return;
      auto& list = users[static_cast<size_t>(value)];
      if (list.empty() || list.back() != id) list.push_back(id);
    };
    for (const ValueId value : node(id).in) use(value);
    for (const Body& body : node(id).bodies)
      for (const ValueId value : body.captures) use(value);
  }
  return users;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  for (const NodeId id : order_) {
    std::replace(node(id).in.begin(), node(id).in.end(), from, to);
    for (Body& body : node(id).bodies) std::replace(body.captures.begin(), body.captures.end(), from, to);
  }
  for (Output& output : outputs_)
    if (output.value == from) output.value = to;
}

void Graph::remove(NodeId id) {
  node(id).removed = true;
  std::erase(order_, id);
}

void Graph::set_order(std::vector<NodeId> order) {
  for (const NodeId id : order_) node(id).removed = true;
  for (const NodeId id : order) node(id).removed = false;
  order_ = std::move(order);
  // Constants that nothing reads any more give their memory back.
  std::vector<bool> read(values_.size());
  const auto use = [&](ValueId value) {
    if (value != kNoValue) read[static_cast<size_t>(value)] = true;
  };
  for (const NodeId id : order_) {
    for (const ValueId value : node(id).in) use(value);
    for (const Body& body : node(id).bodies)
      for (const ValueId value : body.captures) use(value);
  }
  for (const Output& output : outputs_) use(output.value);
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].kind == ValueKind::kConstant && !read[i]) values_[i].constant = std::make_shared<AnyValue>();
}

Result<> Graph::verify() const {
  std::vector<bool> defined(values_.size());
  for (size_t i = 0; i < values_.size(); ++i) defined[i] = values_[i].kind != ValueKind::kNode;
  std::unordered_set<std::string_view> names;
  for (const Value& v : values_) {
    if (v.kind == ValueKind::kInput && !names.insert(v.name).second)
      return error(Code::kInternal, fmt::format("graph: a second input {}", v.name));
    if (v.kind == ValueKind::kWeight) BOLIDE_TRY(check_parts(v));
  }
  names.clear();
  const auto refuse = [](const Node& node, std::string text) {
    return error(Code::kInternal, fmt::format("graph: {} ({}): {}", node.name, op_name(node.op), text));
  };
  for (const NodeId id : order_) {
    const Node& n = node(id);
    if (!names.insert(n.name).second) return refuse(n, "a second node of this name");
    const bool general = std::holds_alternative<Generic>(n.op);
    std::vector<ValueType> in;
    for (const ValueId value : n.in) {
      if (general && value == kNoValue) continue;
      if (!defined[static_cast<size_t>(value)]) return refuse(n, fmt::format("reads %{} before it is made", value));
      in.push_back(type(value));
    }
    for (const Body& body : n.bodies)
      for (const ValueId value : body.captures)
        if (!defined[static_cast<size_t>(value)]) return refuse(n, fmt::format("reads %{} before it is made", value));
    if (general) {
      for (const ValueId out : n.out) defined[static_cast<size_t>(out)] = true;
      continue;
    }
    auto inferred = infer_types(n.op, in, activations_);
    if (!inferred) return refuse(n, inferred.error().text);
    if (inferred->size() != n.out.size()) return refuse(n, "has another number of outputs than its op");
    for (size_t i = 0; i < n.out.size(); ++i) {
      if ((*inferred)[i] != type(n.out[i]))
        return refuse(n, fmt::format("output {} is {}, its op makes {}", i, to_string(type(n.out[i])),
                                     to_string((*inferred)[i])));
      if (value(n.out[i]).producer != id) return refuse(n, "does not own its output");
      defined[static_cast<size_t>(n.out[i])] = true;
    }
  }
  names.clear();
  for (const Output& output : outputs_)
    if (!names.insert(output.name).second)
      return error(Code::kInternal, fmt::format("graph: a second output {}", output.name));
  for (const Output& output : outputs_)
    if (output.value < 0 || !defined[static_cast<size_t>(output.value)])
      return error(Code::kInternal, fmt::format("graph: output {} is never made", output.name));
  return {};
}

}  // namespace bolide
