#include "passes/general/rewriter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "ops/ops.h"
#include "tensor/half.h"

namespace bolide {

Rewriter::Rewriter(Graph& graph, FactsTable& facts)
    : graph_(graph),
      facts_(facts),
      order_(graph.order().begin(), graph.order().end()),
      users_(graph.users()),
      outputs_(graph.value_count()) {
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    outputs_[static_cast<size_t>(graph.outputs()[i].value)].push_back(i);
}

bool Rewriter::is(NodeId id, std::string_view name, std::string_view domain) const {
  if (!alive(id)) return false;
  const auto* generic = std::get_if<Generic>(&graph_.node(id).op);
  return generic != nullptr && generic->def->is_ours() && !graph_.node(id).out.empty() && generic->def->name == name &&
         generic->def->domain == domain;
}

NodeId Rewriter::made_by(ValueId value, std::string_view name, std::string_view domain) const {
  if (value == kNoValue) return -1;
  const NodeId id = graph_.value(value).producer;
  return id >= 0 && is(id, name, domain) && graph_.node(id).out[0] == value ? id : -1;
}

int Rewriter::uses(ValueId value) const {
  return static_cast<int>(users_[static_cast<size_t>(value)].size() + outputs_[static_cast<size_t>(value)].size());
}

NodeId Rewriter::only_user(ValueId value) const {
  if (value == kNoValue) return -1;
  const auto& users = users_[static_cast<size_t>(value)];
  return users.size() == 1 && outputs_[static_cast<size_t>(value)].empty() ? users[0] : -1;
}

std::optional<double> Rewriter::scalar(ValueId value) const {
  const Tensor* t = constant(value);
  if (t == nullptr || t->elements() != 1) return std::nullopt;
  switch (t->dtype()) {
    case DType::kF32: return static_cast<double>(t->as<float>()[0]);
    case DType::kF64: return t->as<double>()[0];
    case DType::kF16: return static_cast<double>(f16_to_f32(t->as<uint16_t>()[0]));
    case DType::kBF16: return static_cast<double>(bf16_to_f32(t->as<uint16_t>()[0]));
    case DType::kI64: return static_cast<double>(t->as<int64_t>()[0]);
    case DType::kI32: return static_cast<double>(t->as<int32_t>()[0]);
    default: return std::nullopt;
  }
}

std::optional<double> Rewriter::scalar_beside(ValueId value, ValueId with) const {
  const auto number = scalar(value);
  if (!number) return std::nullopt;
  const int rank = facts_[value].rank();
  return rank == 0 || (facts_[with].dims && rank <= facts_[with].rank()) ? number : std::nullopt;
}

int64_t Rewriter::integer(NodeId id, std::string_view name, int64_t otherwise) const {
  const auto value = attributes(id).integer(name, otherwise);
  return value ? *value : INT64_MIN;
}

Numbers Rewriter::integers(NodeId id, std::string_view name) const {
  const auto value = attributes(id).integers(name);
  return value ? *value : Numbers{};
}

ValueId Rewriter::add_constant(std::string name, Tensor tensor) {
  const ValueId id = graph_.add_constant(std::move(name), AnyValue(std::move(tensor)));
  users_.emplace_back();
  outputs_.emplace_back();
  facts_.set(id, facts_of(*graph_.value(id).constant->tensor()));
  return id;
}

NodeId Rewriter::emit(NodeId place, std::string_view domain, std::string_view name, int64_t version,
                      std::vector<ValueId> in, NamedAttributes attributes, size_t outputs) {
  const OpDef* def = find_op(domain, name, version);
  BOLIDE_CHECK(def != nullptr, "there is no op {} {} {}", domain, name, version);
  auto kept = std::make_shared<Attributes>();
  for (auto& [key, value] : attributes) kept->set(std::move(key), std::move(value));
  return emit_like(place, Generic{def, version, std::move(kept)}, std::move(in), outputs);
}

NodeId Rewriter::emit_like(NodeId place, Generic op, std::vector<ValueId> in, size_t outputs) {
  std::string name = fmt::format("{}+{}{}", graph_.node(place).name, op.def->name, ++made_);
  const NodeId id = graph_.add_general(std::move(op), std::move(in), outputs, std::move(name), {});
  users_.resize(graph_.value_count());
  outputs_.resize(graph_.value_count());
  for (const ValueId value : graph_.node(id).in)
    if (value != kNoValue) add_use(value, id);
  before_[place].push_back(id);
  facts_.learn(graph_, id);
  heir_ = id;
  return id;
}

void Rewriter::add_use(ValueId value, NodeId user) {
  auto& list = users_[static_cast<size_t>(value)];
  if (std::find(list.begin(), list.end(), user) == list.end()) list.push_back(user);
}

bool Rewriter::reads(NodeId id, ValueId value) const {
  const Node& n = graph_.node(id);
  if (std::find(n.in.begin(), n.in.end(), value) != n.in.end()) return true;
  return std::any_of(n.bodies.begin(), n.bodies.end(), [&](const Body& body) {
    return std::find(body.captures.begin(), body.captures.end(), value) != body.captures.end();
  });
}

void Rewriter::drop_use(ValueId value, NodeId user) {
  if (!reads(user, value) || !alive(user)) std::erase(users_[static_cast<size_t>(value)], user);
}

void Rewriter::replace(ValueId from, ValueId to) {
  if (from == to) return;
  const std::vector<NodeId> users = std::move(users_[static_cast<size_t>(from)]);
  users_[static_cast<size_t>(from)].clear();
  for (const NodeId id : users) {
    Node& n = graph_.node(id);
    std::replace(n.in.begin(), n.in.end(), from, to);
    for (Body& body : n.bodies) std::replace(body.captures.begin(), body.captures.end(), from, to);
    add_use(to, id);
  }
  auto& outputs = outputs_[static_cast<size_t>(from)];
  for (const size_t i : outputs) graph_.set_output(i, to);
  auto& into = outputs_[static_cast<size_t>(to)];
  into.insert(into.end(), outputs.begin(), outputs.end());
  outputs.clear();
  if (const NodeId maker = graph_.value(from).producer; maker >= 0) remove_if_dead(maker);
  heir_ = -1;
}

void Rewriter::set_input(NodeId id, size_t i, ValueId value) {
  const ValueId old = std::exchange(graph_.node(id).in[i], value);
  add_use(value, id);
  drop_use(old, id);
  if (const NodeId maker = graph_.value(old).producer; maker >= 0) remove_if_dead(maker);
}

void Rewriter::drop_if_unread(ValueId constant) {
  const Value& value = graph_.value(constant);
  if (value.kind != ValueKind::kConstant || uses(constant) > 0) return;
  if (const Tensor* tensor = value.constant->tensor(); tensor != nullptr && !tensor->is_string())
    release_mapped({tensor->data(), tensor->bytes()});
  graph_.drop_constant(constant);
}

int Rewriter::remove_if_dead(NodeId first) {
  int removed = 0;
  std::vector<NodeId> todo = {first};
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    Node& n = graph_.node(id);
    if (n.removed || std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return uses(v) > 0; })) continue;
    n.removed = true;
    ++removed;
    if (heir_ >= 0) {
      std::vector<std::string>& from = graph_.node(heir_).from;
      if (n.from.empty())
        from.push_back(n.name);
      else
        from.insert(from.end(), n.from.begin(), n.from.end());
    }
    const auto leave = [&](ValueId value) {
      if (value == kNoValue) return;
      drop_use(value, id);
      if (const NodeId maker = graph_.value(value).producer; maker >= 0) todo.push_back(maker);
    };
    for (const ValueId value : n.in) leave(value);
    for (const Body& body : n.bodies)
      for (const ValueId value : body.captures) leave(value);
  }
  return removed;
}

void Rewriter::finish() {
  std::vector<NodeId> order;
  const auto place = [&](const auto& self, NodeId id) -> void {
    if (const auto it = before_.find(id); it != before_.end())
      for (const NodeId earlier : it->second) self(self, earlier);
    if (!graph_.node(id).removed) order.push_back(id);
  };
  for (const NodeId id : order_) place(place, id);
  graph_.set_order(std::move(order));
  for (size_t i = 0; i < graph_.value_count(); ++i) drop_if_unread(static_cast<ValueId>(i));
}

Result<int> rewrite_all(Graph& graph, const PassContext& context, FunctionRef<Result<int>(Rewriter&)> rewrite) {
  static const std::vector<Facts> kNone;
  int64_t symbols = 0;  // beyond those of the inputs
  for (const Facts& facts : context.inputs != nullptr ? *context.inputs : kNone)
    if (facts.dims)
      for (const int64_t dim : *facts.dims)
        if (is_symbol(dim)) symbols = std::max(symbols, kSymbols0 - dim);
  const auto visit = [&](const auto& self, Graph& one, const std::vector<Facts>& inputs) -> Result<int> {
    FactsTable table(one, inputs, symbols);
    Rewriter rewriter(one, table);
    BOLIDE_TRY(int rewrites, rewrite(rewriter));
    rewriter.finish();
    for (const NodeId id : std::vector<NodeId>(one.order().begin(), one.order().end())) {
      for (Body& body : one.node(id).bodies) {
        size_t count = 0;
        for (size_t i = 0; i < body.graph->value_count(); ++i)
          count += body.graph->value(static_cast<ValueId>(i)).kind == ValueKind::kInput;
        std::vector<Facts> known(count - std::min(count, body.captures.size()));
        for (const ValueId value : body.captures) known.push_back(table[value]);
        Graph inside = *body.graph;
        BOLIDE_TRY(const int there, self(self, inside, known));
        if (there == 0) continue;
        BOLIDE_TRY(inside.verify());
        body.graph = std::make_shared<const Graph>(std::move(inside));
        rewrites += there;
      }
    }
    return rewrites;
  };
  return visit(visit, graph, context.inputs != nullptr ? *context.inputs : kNone);
}

std::vector<Leaf> leaves_of(const Rewriter& r, ValueId value, std::string_view op, size_t most) {
  std::vector<Leaf> leaves, todo = {{value, false}};
  while (!todo.empty()) {
    const Leaf leaf = todo.back();
    todo.pop_back();
    const NodeId made = leaf.inverse ? -1 : r.made_by(leaf.value, op);
    const NodeId over = leaf.inverse || op != "Mul" ? -1 : r.made_by(leaf.value, "Div");
    const bool deep = leaves.size() + todo.size() + 2 <= most;
    if (made >= 0 && deep && r.op(made).version >= 7 && r.node(made).in.size() == 2) {
      todo.push_back({r.in(made, 1), false});
      todo.push_back({r.in(made, 0), false});
    } else if (over >= 0 && deep && r.op(over).version >= 7 && r.scalar(r.in(over, 1))) {
      todo.push_back({r.in(over, 1), true});
      todo.push_back({r.in(over, 0), false});
    } else {
      leaves.push_back(leaf);
    }
  }
  return leaves;
}

}  // namespace bolide
