#include "passes/general/code_tables.h"

#include <algorithm>

#include "base/workers.h"

namespace bolide {
namespace {

constexpr size_t kNodesMax = 40;
constexpr int kDepthMax = 24;

bool is_plain(const Rewriter& r, NodeId id) {
  const auto& all = r.attributes(id).all();
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.first == "axis"; });
}

bool is_elementwise(const Rewriter& r, NodeId id) {
  for (const std::string_view name : {"Add",
                                      "Sub",
                                      "Mul",
                                      "Div",
                                      "Pow",
                                      "Max",
                                      "Min",
                                      "Erf",
                                      "Tanh",
                                      "Sigmoid",
                                      "Relu",
                                      "Clip",
                                      "Sqrt",
                                      "Exp",
                                      "Neg",
                                      "Abs",
                                      "LeakyRelu",
                                      "HardSigmoid",
                                      "HardSwish",
                                      "Elu",
                                      "Softplus",
                                      "Gelu",
                                      "QuantizeLinear",
                                      "DequantizeLinear"})
    if (r.is(id, name)) return r.op(id).version >= 7 && r.node(id).out.size() == 1;
  return r.is(id, "QLookUp", "bolide");
}

// The nodes from codes of 8 bits, the same for all, to `id`, in the order in which they run.
bool gather(const Rewriter& r, NodeId id, std::vector<NodeId>* nodes, ValueId* source, int depth) {
  if (std::find(nodes->begin(), nodes->end(), id) != nodes->end()) return true;
  if (depth > kDepthMax || nodes->size() >= kNodesMax || !is_elementwise(r, id)) return false;
  const bool opens = r.is(id, "DequantizeLinear"), table = r.is(id, "QLookUp", "bolide");
  if ((opens || r.is(id, "QuantizeLinear")) && !is_plain(r, id)) return false;
  for (size_t i = 0; i < (table ? 1 : r.node(id).in.size()); ++i) {
    const ValueId value = r.in(id, i);
    if (value == kNoValue) continue;
    if (const Tensor* t = r.constant(value)) {
      if (t->elements() != 1 || t->rank() > std::max(1, r.facts(r.out(id)).rank())) return false;
      continue;
    }
    const NodeId maker = r.graph().value(value).producer;
    if (maker >= 0 && r.alive(maker) && r.out(maker) == value && is_elementwise(r, maker) &&
        !(opens && r.is(maker, "QuantizeLinear"))) {
      if (!gather(r, maker, nodes, source, depth + 1)) return false;
      continue;
    }
    const DType dtype = r.facts(value).dtype;
    if ((!opens && !table) || i != 0 || (dtype != DType::kU8 && dtype != DType::kI8)) return false;
    if (*source != kNoValue && *source != value) return false;
    *source = value;
  }
  nodes->push_back(id);
  return true;
}

using Values = std::unordered_map<ValueId, Tensor>;

Result<Tensor> evaluate(const Rewriter& r, NodeId id, const Values& values) {
  const Generic& op = r.op(id);
  std::vector<AnyValue> held;
  held.reserve(r.node(id).in.size());
  std::vector<const AnyValue*> in;
  for (const ValueId value : r.node(id).in) {
    if (value == kNoValue) {
      in.push_back(nullptr);
      continue;
    }
    const Tensor* constant = r.constant(value);
    const bool table = constant != nullptr && constant->elements() != 1;
    held.emplace_back(constant == nullptr ? values.at(value) : table ? *constant : constant->reshaped({}));
    in.push_back(&held.back());
  }
  std::vector<AnyValue> out(1);
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kNotFound, "has no graph");
  };
  Workers workers(1);
  RunContext context(*op.attributes, op.version, in, out, workers, heap_pool(), no_body);
  BOLIDE_TRY(op.def->run(context));
  const Tensor* made = out[0].tensor();
  if (made == nullptr || (made->elements() != 256 && made->elements() != 1))
    return error(Code::kInternal, "is no table");
  return made->elements() == 1 ? made->reshaped({}) : *made;
}

}  // namespace

std::optional<CodeTable> table_of_codes(const Rewriter& r, NodeId id) {
  std::vector<NodeId> nodes;
  CodeTable found;
  if (!gather(r, id, &nodes, &found.source, 0) || found.source == kNoValue || nodes.size() < 3) return std::nullopt;
  auto all = Tensor::make(r.facts(found.source).dtype, {256});
  if (!all) return std::nullopt;
  for (size_t i = 0; i < 256; ++i) all->mutable_data()[i] = static_cast<std::byte>(i);
  Values values;
  values.emplace(found.source, *all);
  for (const NodeId node : nodes) {
    auto made = evaluate(r, node, values);
    if (!made) return std::nullopt;
    values.insert_or_assign(r.out(node), *std::move(made));
  }
  found.table = values.at(r.out(id));
  const DType dtype = found.table.dtype();
  if ((dtype != DType::kU8 && dtype != DType::kI8) || found.table.elements() != 256) return std::nullopt;
  return found;
}

}  // namespace bolide
