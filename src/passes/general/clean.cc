// remove_identities: nodes whose output is their input. merge_common: nodes of one op, attributes and inputs become
// one, small constants of the same contents as well. remove_dead_general: nodes whose results nothing reads.
#include <cstring>
#include <map>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

bool is_identity(const Rewriter& r, NodeId id) {
  const Node& node = r.node(id);
  const Generic& op = r.op(id);
  if (!op.def->is_ours() || !op.def->domain.empty() || node.in.empty() || node.out.empty() || node.in[0] == kNoValue)
    return false;
  const std::string_view name = op.def->name;
  const Facts &x = r.facts(node.in[0]), &y = r.facts(node.out[0]);
  const bool same_dims = x.dims && y.dims && *x.dims == *y.dims;
  if (name == "Identity") return true;
  if (name == "Dropout") {
    if (node.out.size() > 1 && r.uses(node.out[1]) > 0) return false;
    if (op.version < 7) return r.integer(id, "is_test", 0) != 0;
    if (op.version < 12 || node.in.size() < 3 || node.in[2] == kNoValue) return is_float(x.dtype);
    const Tensor* training = r.constant(node.in[2]);
    return training != nullptr && training->dtype() == DType::kBool && training->elements() == 1 &&
           training->as<uint8_t>()[0] == 0 && is_float(x.dtype);
  }
  if (name == "Cast") return x.dtype != DType::kNone && x.dtype == y.dtype;
  if (name == "Transpose") {
    const Numbers perm = r.integers(id, "perm");
    if (perm.empty()) return x.dims && x.rank() <= 1;
    for (size_t i = 0; i < perm.size(); ++i)
      if (perm[i] != static_cast<int64_t>(i)) return false;
    return true;
  }
  if (name == "Reshape" || name == "Flatten" || name == "Expand") return same_dims;
  if (name == "Concat") return node.in.size() == 1;
  if ((name == "Mul" || name == "Div") && op.version >= 7 && node.in.size() == 2) {
    const auto one = r.scalar_beside(node.in[1], node.in[0]);
    return one && *one == 1;
  }
  return false;
}

// A view of a view: the first one's shape does not matter if the second names all dims itself.
bool reads_a_reshape(const Rewriter& r, NodeId id) {
  if (!r.is(id, "Reshape") || r.op(id).version < 5 || r.made_by(r.in(id, 0), "Reshape") < 0) return false;
  if (r.in(r.made_by(r.in(id, 0), "Reshape"), 0) == kNoValue) return false;
  const Facts& target = r.facts(r.in(id, 1));
  if (!target.values || r.constant(r.in(id, 1)) == nullptr) return false;
  for (const int64_t dim : *target.values)
    if (dim == 0) return false;
  return true;
}

Result<int> identities(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.alive(id) || !std::holds_alternative<Generic>(r.node(id).op)) continue;
    r.table().learn(r.graph(), id);
    if (is_identity(r, id)) {
      r.replace(r.out(id), r.in(id, 0));
      ++rewrites;
    } else if (reads_a_reshape(r, id)) {
      r.set_input(id, 0, r.in(r.made_by(r.in(id, 0), "Reshape"), 0));
      ++rewrites;
    }
  }
  return rewrites;
}

void append(std::string& key, const void* data, size_t bytes) {
  const uint64_t size = bytes;
  key.append(reinterpret_cast<const char*>(&size), sizeof size);
  if (bytes > 0) key.append(static_cast<const char*>(data), bytes);
}
template <class T>
void append(std::string& key, const T& value) {
  append(key, &value, sizeof value);
}
void append(std::string& key, const std::string& text) { append(key, text.data(), text.size()); }
void append(std::string& key, const Tensor& tensor) {
  append(key, tensor.dtype());
  append(key, tensor.shape().span().data(), tensor.shape().span().size_bytes());
  if (tensor.is_string())
    for (const std::string& text : tensor.as<std::string>()) append(key, text);
  else
    append(key, tensor.data(), tensor.bytes());
}
template <class T>
void append(std::string& key, const std::vector<T>& list) {
  append(key, list.size());
  for (const T& one : list) append(key, one);
}

std::string key_of(const Rewriter& r, NodeId id) {
  const Generic& op = r.op(id);
  std::string key;
  append(key, op.def), append(key, op.version), append(key, r.node(id).in), append(key, r.node(id).out.size());
  for (const auto& [name, value] : op.attributes->all()) {
    append(key, name), append(key, value.index());
    std::visit([&](const auto& one) { append(key, one); }, value);
  }
  return key;
}

Result<int> common(Rewriter& r) {
  constexpr size_t kBytesMax = 4096;
  int rewrites = 0;
  std::map<std::string, ValueId> constants;
  const size_t values = r.graph().value_count();
  for (size_t i = 0; i < values; ++i) {
    const auto id = static_cast<ValueId>(i);
    if (r.graph().value(id).kind != ValueKind::kConstant || r.uses(id) == 0) continue;
    const Tensor* tensor = r.graph().value(id).constant->tensor();
    if (tensor == nullptr || tensor->bytes() > kBytesMax || tensor->is_string()) continue;
    std::string key;
    append(key, *tensor);
    if (const auto [it, fresh] = constants.emplace(std::move(key), id); !fresh) r.replace(id, it->second);
  }
  std::map<std::string, NodeId> nodes;
  for (const NodeId id : r.order()) {
    if (!r.alive(id) || !std::holds_alternative<Generic>(r.node(id).op)) continue;
    if (!r.op(id).def->pure || !r.node(id).bodies.empty()) continue;
    const auto [it, fresh] = nodes.emplace(key_of(r, id), id);
    if (fresh) continue;
    const std::vector<ValueId> outputs = r.node(id).out;
    for (size_t i = 0; i < outputs.size(); ++i) r.replace(outputs[i], r.node(it->second).out[i]);
    ++rewrites;
  }
  return rewrites;
}

Result<int> dead(Rewriter& r) {
  int rewrites = 0;
  for (auto it = r.order().rbegin(); it != r.order().rend(); ++it)
    if (r.alive(*it)) rewrites += r.remove_if_dead(*it);
  return rewrites;
}

}  // namespace

Result<int> remove_identities(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return identities(r); });
}
Result<int> merge_common(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return common(r); });
}
Result<int> remove_dead_general(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return dead(r); });
}

}  // namespace bolide
