#include "plan/device_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/moves.h"
#include "passes/general/general.h"

namespace bolide {
namespace {

// Finds what follows products.
class Followers {
 public:
  explicit Followers(const Graph& graph) : graph_(graph), users_(graph.users()), outputs_(graph.value_count()) {
    for (const Output& output : graph.outputs()) ++outputs_[static_cast<size_t>(output.value)];
    for (size_t i = 0; i < graph.order().size(); ++i) place_[graph.order()[i]] = i;
  }

  DeviceProgram::Behind behind(NodeId product) const {
    DeviceProgram::Behind found;
    ValueId y = graph_.node(product).out[0];
    const auto take = [&](NodeId node) {
      found.nodes.push_back(node);
      y = found.last = graph_.node(node).out[0];
    };
    for (;;) {
      if (const auto silu = silu_of(y); silu.first >= 0) {
        found.nodes.push_back(silu.first);
        take(silu.second);
        found.then = {ElementOp::kSilu, 1};
        return found;
      }
      const NodeId user = only_user(y);
      if (user < 0) return found;
      const Node& node = graph_.node(user);
      if (is(user, "BiasGelu", "com.microsoft") && node.in.size() == 2 && node.in[0] == y && is_row(node.in[1]) &&
          found.bias == kNoValue && found.residual == kNoValue) {
        found.bias = node.in[1];
        take(user);
        found.then = {ElementOp::kGelu};
        return found;
      }
      if (is(user, "Add") && node.in.size() == 2 && std::get<Generic>(node.op).version >= 7 &&
          node.in[0] != node.in[1]) {
        const ValueId other = node.in[0] == y ? node.in[1] : node.in[0];
        if (is_row(other) && found.bias == kNoValue && found.residual == kNoValue) {
          found.bias = other;
        } else if (found.residual == kNoValue && is_made_before(other, product)) {
          found.residual = other;
        } else {
          return found;
        }
        take(user);
        continue;
      }
      if (const auto element = activation(user); element && node.in[0] == y && can_follow_product(element->op)) {
        take(user);
        found.then = *element;
      }
      return found;
    }
  }

 private:
  bool is(NodeId id, std::string_view name, std::string_view domain = "") const {
    const auto* op = std::get_if<Generic>(&graph_.node(id).op);
    return op != nullptr && op->def->is_ours() && op->def->name == name && op->def->domain == domain;
  }
  NodeId only_user(ValueId value) const {
    const auto i = static_cast<size_t>(value);
    return outputs_[i] == 0 && users_[i].size() == 1 && graph_.node(users_[i][0]).bodies.empty() ? users_[i][0] : -1;
  }
  // A constant vector, perhaps with axes of one before.
  bool is_row(ValueId value) const {
    const Value& v = graph_.value(value);
    const Tensor* tensor = v.kind == ValueKind::kConstant ? v.constant->tensor() : nullptr;
    return tensor != nullptr && tensor->rank() >= 1 && tensor->elements() == tensor->dim(-1) &&
           is_float(tensor->dtype());
  }
  bool is_made_before(ValueId value, NodeId node) const {
    const Value& v = graph_.value(value);
    return v.kind == ValueKind::kNode && place_.at(v.producer) < place_.at(node);
  }
  // x * sigmoid(x): both nodes.
  std::pair<NodeId, NodeId> silu_of(ValueId value) const {
    const auto i = static_cast<size_t>(value);
    if (outputs_[i] != 0 || users_[i].size() != 2) return {-1, -1};
    for (const size_t first : {0, 1}) {
      const NodeId sigmoid = users_[i][first], product = users_[i][1 - first];
      if (!is(sigmoid, "Sigmoid") || !is(product, "Mul")) continue;
      const ValueId s = graph_.node(sigmoid).out[0];
      const Node& node = graph_.node(product);
      if (only_user(s) == product &&
          ((node.in[0] == value && node.in[1] == s) || (node.in[0] == s && node.in[1] == value)))
        return {sigmoid, product};
    }
    return {-1, -1};
  }
  std::optional<Element> activation(NodeId id) const {
    const Node& node = graph_.node(id);
    const auto* op = std::get_if<Generic>(&node.op);
    if (op == nullptr || !op->def->is_ours() || node.in.empty() || node.out.size() != 1) return std::nullopt;
    if (is(id, "Clip") && op->version >= 11) {
      Element clip{ElementOp::kClip, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
      for (size_t i = 1; i < node.in.size(); ++i) {
        if (node.in[i] == kNoValue) continue;
        const Value& bound = graph_.value(node.in[i]);
        const Tensor* tensor = bound.kind == ValueKind::kConstant ? bound.constant->tensor() : nullptr;
        if (tensor == nullptr || tensor->elements() != 1 || i > 2) return std::nullopt;
        const auto values = doubles_of(*tensor);
        if (!values) return std::nullopt;
        (i == 1 ? clip.p : clip.q) = static_cast<float>((*values)[0]);
      }
      return clip.p <= clip.q ? std::optional(clip) : std::nullopt;
    }
    if (node.in.size() != 1) return std::nullopt;
    return element_of(op->def->domain, op->def->name, *op->attributes, op->version);
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<int> outputs_;
  std::unordered_map<NodeId, size_t> place_;
};

}  // namespace

std::string key_of(const std::vector<AnyValue>& inputs) {
  std::string key;
  for (const AnyValue& value : inputs) {
    const Tensor* tensor = value.tensor();
    if (tensor == nullptr || tensor->is_string() || !*tensor) return {};
    key += fmt::format("{}{};", to_string(tensor->dtype()), to_string(tensor->shape()));
  }
  return key.empty() ? "none" : key;
}

Result<std::unique_ptr<DeviceProgram>> DeviceProgram::make(const Graph& general, const std::vector<AnyValue>& inputs,
                                                           const std::set<std::string>& skip_passes, Workers& workers) {
  auto program = std::make_unique<DeviceProgram>();
  program->graph = general;
  program->key = key_of(inputs);
  Graph& graph = program->graph;
  std::vector<Facts> facts;
  for (const AnyValue& value : inputs) {
    const Tensor& tensor = *value.tensor();
    facts.push_back(
        {.dtype = tensor.dtype(), .dims = Numbers(tensor.shape().span().begin(), tensor.shape().span().end())});
  }
  std::set<std::string> names = skip_passes;
  if (names.erase("all") > 0)
    for (const Pass& pass : general_passes()) names.emplace(pass.name);
  BOLIDE_TRY(run_general_passes(graph, facts, workers, names));

  program->slots.resize(graph.value_count());
  for (size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.kind == ValueKind::kInput) program->inputs.push_back(static_cast<ValueId>(i));
    if (value.kind != ValueKind::kConstant) continue;
    DeviceSlot& slot = program->slots[i];
    slot.host = *value.constant;
    slot.on_host = slot.is_known = slot.is_constant = true;
    if (const Tensor* tensor = slot.host.tensor()) slot.dtype = tensor->dtype(), slot.shape = tensor->shape();
  }
  if (program->inputs.size() != inputs.size()) return error(Code::kInternal, "passes changed the inputs");
  const Followers followers(graph);
  const auto users = graph.users();
  std::vector<size_t> last(graph.value_count(), SIZE_MAX);
  std::unordered_map<NodeId, int> steps;
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    Step step;
    step.node = id;
    step.op = std::get_if<Generic>(&node.op);
    if (step.op == nullptr) return error(Code::kInternal, fmt::format("{}: no general op", node.name));
    const OpDef& def = *step.op->def;
    if (def.is_ours() && node.bodies.empty()) step.row = find_device_op(def.domain, def.name);
    for (const ValueId out : node.out) {
      bool used = !users[static_cast<size_t>(out)].empty();
      for (const Output& output : graph.outputs()) used = used || output.value == out;
      step.used.push_back(used);
    }
    const auto use = [&](ValueId value) {
      if (value != kNoValue && graph.value(value).kind != ValueKind::kConstant)
        last[static_cast<size_t>(value)] = program->steps.size();
    };
    for (const ValueId value : node.in) use(value);
    for (const ValueId value : node.out) use(value);
    for (const Body& body : node.bodies)
      for (const ValueId value : body.captures) use(value);
    if (step.row != nullptr && step.row->is_product && node.out.size() == 1) step.behind = followers.behind(id);
    steps[id] = static_cast<int>(program->steps.size());
    program->steps.push_back(std::move(step));
  }
  for (size_t i = 0; i < program->steps.size(); ++i)
    for (const NodeId node : program->steps[i].behind.nodes)
      program->steps[static_cast<size_t>(steps.at(node))].within = static_cast<int>(i);
  for (const Output& output : graph.outputs()) last[static_cast<size_t>(output.value)] = SIZE_MAX;
  for (size_t i = 0; i < last.size(); ++i)
    if (last[i] != SIZE_MAX) program->steps[last[i]].last.push_back(static_cast<ValueId>(i));
  for (const Step& step : program->steps) {
    const Node& node = graph.node(step.node);
    program->placements.push_back({.node = node.name, .op = std::string(step.op->def->name)});
  }
  return program;
}

Result<> DeviceProgram::prepare_for_cpu(Step& step, const DeviceInfo& device, Workers& workers) const {
  if (step.is_prepared) return {};
  step.is_prepared = true;
  const Node& node = graph.node(step.node);
  for (const Body& body : node.bodies) {
    BOLIDE_TRY(Interpreter inside, Interpreter::make(*body.graph));
    step.bodies.push_back(std::make_unique<Interpreter>(std::move(inside)));
  }
  if (step.op->def->prepare == nullptr) return {};
  std::vector<const AnyValue*> given;
  uint64_t present = 0;
  for (size_t i = 0; i < node.in.size() && i < 64; ++i)
    if (node.in[i] != kNoValue) present |= uint64_t{1} << i;
  for (const ValueId id : node.in) given.push_back(id == kNoValue ? nullptr : graph.value(id).constant.get());
  BOLIDE_TRY(step.prepared, step.op->def->prepare({.attributes = *step.op->attributes,
                                                   .version = step.op->version,
                                                   .constants = given,
                                                   .outputs = node.out.size(),
                                                   .device = device,
                                                   .workers = workers,
                                                   .present = present}));
  return {};
}

}  // namespace bolide
