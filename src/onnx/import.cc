#include "onnx/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "ops/ops.h"

namespace bolide {
namespace {

constexpr int kCallsMax = 64;           // functions and bodies inside of each other
constexpr int64_t kNodesMax = 4000000;  // after functions are expanded

using Opsets = std::map<std::string, int64_t, std::less<>>;

std::string_view canonical(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

// A graph that is being built, and the values around it that it reads.
struct Frame {
  Graph graph;
  std::vector<ValueId> captures;
  std::set<std::string, std::less<>> names;  // of nodes
};
// Names that nodes may read: of a graph, or of a function's body inside of one.
struct Scope {
  Frame* frame = nullptr;
  Scope* outer = nullptr;  // null: a model's graph or a function, which see nothing else
  std::unordered_map<std::string_view, ValueId> values;
};
// What the nodes of a model or of a function have in common.
struct Context {
  const Opsets* opsets = nullptr;
  std::map<std::string_view, OnnxAttribute> attributes = {};  // of the call of a function: what references mean
  std::string prefix;                                         // of nodes' names
  int depth = 0;
};

class Importer {
 public:
  Importer(const OnnxModel& model, OnnxData data, std::span<const OpDef> added)
      : model_(model), data_(std::move(data)), added_(added) {
    for (const OnnxFunction& f : model.functions) functions_[{canonical(f.domain), f.name, f.overload}] = &f;
  }

  Result<> import(OnnxProgram& program) {
    Opsets opsets;
    for (const OnnxOpset& opset : model_.opsets) opsets[std::string(canonical(opset.domain))] = opset.version;
    for (const auto& [domain, version] : opsets) program.opsets.emplace_back(domain, version);
    Frame frame;
    Scope scope{&frame, nullptr, {}};
    std::map<std::string_view, AnyValue> initialisers;
    BOLIDE_TRY(read_initialisers(model_.graph, initialisers));
    for (const OnnxValueInfo& input : model_.graph.inputs) {
      const auto known = initialisers.find(input.name);
      // An initialiser of the name of an input is what the input is by default. It is taken for a constant, which it is
      // in every file that exporters list all weights as inputs in.
      if (known != initialisers.end()) continue;
      if (scope.values.contains(input.name)) return twice("input", input.name);
      scope.values[input.name] = frame.graph.add_input(std::string(input.name), {});
      program.inputs.push_back({std::string(input.name), input.type});
    }
    for (auto& [name, value] : initialisers)
      if (!scope.values.contains(name)) scope.values[name] = frame.graph.add_constant(std::string(name), value);
    Context context{&opsets, {}, "", 0};
    BOLIDE_TRY(import_nodes(model_.graph.nodes, scope, context));
    for (const OnnxValueInfo& output : model_.graph.outputs) {
      BOLIDE_TRY(const ValueId value, resolve(scope, output.name).context("the graph's outputs"));
      frame.graph.add_output(std::string(output.name), value);
      program.outputs.push_back({std::string(output.name), output.type});
    }
    program.graph = std::move(frame.graph);
    return program.graph.verify();
  }

 private:
  static Error twice(std::string_view what, std::string_view name) {
    return error(Code::kInvalid, fmt::format("{} {:.200} is made twice", what, name));
  }

  Result<> read_initialisers(const OnnxGraph& graph, std::map<std::string_view, AnyValue>& to) {
    const auto add = [&](std::string_view name, Result<Tensor> tensor) -> Result<> {
      if (!tensor) return std::move(tensor).error().context("initialiser");
      if (!to.emplace(name, *std::move(tensor)).second) return twice("initialiser", name);
      return {};
    };
    for (const OnnxTensor& tensor : graph.initializers) BOLIDE_TRY(add(tensor.name, onnx_tensor(tensor, data_)));
    for (const OnnxSparseTensor& tensor : graph.sparse_initializers)
      BOLIDE_TRY(add(tensor.values.name, onnx_tensor(tensor, data_)));
    return {};
  }

  Result<ValueId> resolve(Scope& scope, std::string_view name) {
    if (const auto it = scope.values.find(name); it != scope.values.end()) return it->second;
    if (scope.outer == nullptr)
      return error(Code::kInvalid, fmt::format("value {:.200} is read and never made before it", name));
    BOLIDE_TRY(const ValueId around, resolve(*scope.outer, name));
    if (scope.outer->frame == scope.frame || around == kNoValue) return around;
    Graph& graph = scope.frame->graph;
    const Value& value = scope.outer->frame->graph.value(around);
    ValueId inside;
    if (value.kind == ValueKind::kConstant) {
      inside = graph.add_constant(value.name, *value.constant);
    } else {
      inside = graph.add_input(fmt::format("{} (outside)", name), {});
      scope.frame->captures.push_back(around);
    }
    scope.values[name] = inside;
    return inside;
  }

  Result<> import_nodes(const std::vector<OnnxNode>& nodes, Scope& scope, const Context& context) {
    if (context.depth > kCallsMax)
      return error(Code::kInvalid,
                   fmt::format("{}: more than {} functions or bodies inside of each other", context.prefix, kCallsMax));
    for (size_t i = 0; i < nodes.size(); ++i) {
      const OnnxNode& node = nodes[i];
      const std::string name =
          unique_name(*scope.frame,
                      context.prefix + (node.name.empty() ? fmt::format("{}_{}", node.op, i) : std::string(node.name)));
      if (++nodes_ > kNodesMax) return error(Code::kInvalid, fmt::format("more than {} nodes", kNodesMax));
      BOLIDE_TRY(import_node(node, scope, context, name)
                     .context(fmt::format("node {:.200} ({}{}{})", name, node.domain, node.domain.empty() ? "" : ".",
                                          node.op)));
    }
    return {};
  }

  static std::string unique_name(Frame& frame, std::string name) {
    std::string unique = name;
    for (int i = 2; !frame.names.insert(unique).second; ++i) unique = fmt::format("{}#{}", name, i);
    return unique;
  }

  Result<> import_node(const OnnxNode& node, Scope& scope, const Context& context, const std::string& name) {
    std::vector<ValueId> in;
    for (const std::string_view input : node.in) {
      if (input.empty()) {
        in.push_back(kNoValue);
        continue;
      }
      BOLIDE_TRY(const ValueId value, resolve(scope, input));
      in.push_back(value);
    }
    std::vector<OnnxAttribute> attributes;
    for (const OnnxAttribute& attribute : node.attributes) {
      if (attribute.reference.empty()) {
        attributes.push_back(attribute);
      } else if (const auto it = context.attributes.find(attribute.reference); it != context.attributes.end()) {
        attributes.push_back(it->second);
        attributes.back().name = attribute.name;
      }
    }
    const std::string_view domain = canonical(node.domain);
    const auto opset = context.opsets->find(domain);
    const int64_t version = opset != context.opsets->end() ? opset->second : 1;
    Generic op;
    op.def = find_added(domain, node.op, version);
    if (op.def == nullptr) {
      if (const auto it = functions_.find({domain, node.op, node.overload}); it != functions_.end())
        return import_call(*it->second, in, attributes, node, scope, context, name);
      op.def = find_op(domain, node.op, version);
    }
    if (op.def == nullptr)
      return error(Code::kUnsupported, fmt::format("no operator {} in version {} of {}", node.op, version,
                                                   domain.empty() ? "ai.onnx" : domain));
    op.version = version;
    auto kept = std::make_shared<Attributes>();
    std::vector<Body> bodies;
    for (const OnnxAttribute& attribute : attributes) {
      if (!attribute.graphs.empty()) {
        for (const OnnxGraph& graph : attribute.graphs) {
          BOLIDE_TRY(Body body, import_body(graph, attribute.name, scope, context, name));
          bodies.push_back(std::move(body));
        }
        continue;
      }
      BOLIDE_TRY(Attributes::Any value, value_of(attribute).context(fmt::format("attribute {:.100}", attribute.name)));
      if (kept->has(attribute.name)) return twice("attribute", attribute.name);
      kept->set(std::string(attribute.name), std::move(value));
    }
    op.attributes = std::move(kept);
    const NodeId id =
        scope.frame->graph.add_general(std::move(op), std::move(in), node.out.size(), name, std::move(bodies));
    for (size_t i = 0; i < node.out.size(); ++i)
      if (!node.out[i].empty()) BOLIDE_TRY(define(scope, node.out[i], scope.frame->graph.node(id).out[i]));
    return {};
  }

  const OpDef* find_added(std::string_view domain, std::string_view name, int64_t version) const {
    const OpDef* found = nullptr;
    for (const OpDef& row : added_)
      if (row.domain == domain && row.name == name && row.since <= version &&
          (found == nullptr || row.since > found->since))
        found = &row;
    return found;
  }

  static Result<> define(Scope& scope, std::string_view name, ValueId value) {
    if (!scope.values.emplace(name, value).second) return twice("value", name);
    return {};
  }

  Result<Body> import_body(const OnnxGraph& graph, std::string_view attribute, Scope& outer, const Context& context,
                           const std::string& name) {
    Frame frame;
    Scope scope{&frame, &outer, {}};
    for (const OnnxValueInfo& input : graph.inputs) {
      if (scope.values.contains(input.name)) return twice("input", input.name);
      scope.values[input.name] = frame.graph.add_input(std::string(input.name), {});
    }
    std::map<std::string_view, AnyValue> initialisers;
    BOLIDE_TRY(read_initialisers(graph, initialisers));
    for (auto& [key, value] : initialisers)
      BOLIDE_TRY(define(scope, key, frame.graph.add_constant(std::string(key), value)));
    Context inside = context;
    inside.prefix = name + "/";
    ++inside.depth;
    BOLIDE_TRY(import_nodes(graph.nodes, scope, inside));
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      BOLIDE_TRY(const ValueId value, resolve(scope, graph.outputs[i].name));
      frame.graph.add_output(fmt::format("{}", i), value);
    }
    BOLIDE_TRY(frame.graph.verify());
    return Body{std::string(attribute), std::make_shared<const Graph>(std::move(frame.graph)),
                std::move(frame.captures)};
  }

  Result<> import_call(const OnnxFunction& function, const std::vector<ValueId>& in,
                       const std::vector<OnnxAttribute>& attributes, const OnnxNode& node, Scope& scope,
                       const Context& context, const std::string& name) {
    if (in.size() > function.inputs.size())
      return error(Code::kInvalid, fmt::format("{} inputs for a function of {}", in.size(), function.inputs.size()));
    if (node.out.size() > function.outputs.size())
      return error(Code::kInvalid,
                   fmt::format("{} outputs of a function of {}", node.out.size(), function.outputs.size()));
    Scope inside{scope.frame, nullptr, {}};
    for (size_t i = 0; i < function.inputs.size(); ++i)
      inside.values[function.inputs[i]] = i < in.size() ? in[i] : kNoValue;
    Opsets opsets;
    for (const OnnxOpset& opset : function.opsets) opsets[std::string(canonical(opset.domain))] = opset.version;
    Context called{&opsets, {}, name + "/", context.depth + 1};
    for (const OnnxAttribute& attribute : function.defaults) called.attributes[attribute.name] = attribute;
    for (const OnnxAttribute& attribute : attributes) called.attributes[attribute.name] = attribute;
    BOLIDE_TRY(import_nodes(function.nodes, inside, called));
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.out[i].empty()) continue;
      BOLIDE_TRY(const ValueId value, resolve(inside, function.outputs[i]));
      BOLIDE_TRY(define(scope, node.out[i], value));
    }
    return {};
  }

  Result<Attributes::Any> value_of(const OnnxAttribute& a) const {
    enum : int64_t { kFloat = 1, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings, kTensors, kGraphs };
    int64_t type = a.type;
    if (type == 0)  // files of the first versions do not say it
      type = !a.numbers.empty()      ? kFloats
             : !a.integers.empty()   ? kInts
             : !a.texts.empty()      ? kStrings
             : a.tensors.size() == 1 ? kTensor
             : !a.text.empty()       ? kString
             : a.number != 0         ? kFloat
                                     : kInt;
    const auto tensors = [&]() -> Result<std::vector<Tensor>> {
      std::vector<Tensor> list;
      for (const OnnxTensor& one : a.tensors) {
        BOLIDE_TRY(Tensor tensor, onnx_tensor(one, data_));
        list.push_back(std::move(tensor));
      }
      for (const OnnxSparseTensor& one : a.sparse) {
        BOLIDE_TRY(Tensor tensor, onnx_tensor(one, data_));
        list.push_back(std::move(tensor));
      }
      return list;
    };
    switch (type) {
      case kFloat: return a.number;
      case kInt: return a.integer;
      case kString: return std::string(a.text);
      case kFloats: return a.numbers;
      case kInts: return a.integers;
      case kStrings: return std::vector<std::string>(a.texts.begin(), a.texts.end());
      case kTensor:
      case 11: {  // sparse
        BOLIDE_TRY(std::vector<Tensor> list, tensors());
        if (list.size() != 1) return error(Code::kInvalid, "has no tensor");
        return std::move(list[0]);
      }
      case kTensors:
      case 12: {
        BOLIDE_TRY(std::vector<Tensor> list, tensors());
        return list;
      }
      case 13:  // a type: what it says shows in the values
      case 14: return int64_t{a.types.empty() ? 0 : a.types[0].element};
      default: return error(Code::kInvalid, fmt::format("is of type {}", type));
    }
  }

  using FunctionKey = std::tuple<std::string_view, std::string_view, std::string_view>;
  const OnnxModel& model_;
  OnnxData data_;
  std::span<const OpDef> added_;
  std::map<FunctionKey, const OnnxFunction*> functions_;
  int64_t nodes_ = 0;
};

}  // namespace

Result<OnnxProgram> import_onnx(Bytes file, std::shared_ptr<const void> owner, const std::filesystem::path& folder,
                                const std::string& label, std::span<const OpDef> added) {
  BOLIDE_TRY(const OnnxModel model, OnnxModel::parse(file, label));
  OnnxProgram program;
  program.file = owner;
  program.producer = model.producer;
  for (const auto& [key, value] : model.metadata) program.metadata.emplace_back(key, value);
  BOLIDE_TRY(Importer(model, {std::move(owner), folder}, added).import(program).context(label));
  return program;
}

Result<OnnxProgram> open_onnx(const std::filesystem::path& path, std::span<const OpDef> added) {
  BOLIDE_TRY(MappedFile mapped, MappedFile::open(path));
  auto file = std::make_shared<const MappedFile>(std::move(mapped));
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  return import_onnx(file->bytes(), file, folder, path.string(), added);
}

}  // namespace bolide
