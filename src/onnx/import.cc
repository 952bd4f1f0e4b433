#include "onnx/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "onnx/known_attributes.h"
#include "ops/ops.h"

namespace bolide {
namespace {

constexpr int kCallsMax = 64;                    // functions and bodies inside of each other
constexpr int64_t kNodesMax = int64_t{1} << 20;  // after functions are expanded
// What a small file may become: the names of nodes after functions are expanded; the tensors of functions, made at each
// call, and sparse ones with their zeros.
constexpr uint64_t kNamesMax = uint64_t{1} << 28;
constexpr uint64_t kExpandedMax = uint64_t{1} << 30;
constexpr size_t kWarningsMax = 16;  // unknown attributes that are named

using Opsets = std::map<std::string, int64_t, std::less<>>;

std::string_view canonical(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

// A graph that is being built, and the values around it that it reads.
struct Frame {
  Graph graph;
  std::vector<ValueId> captures;
  std::unordered_map<std::string, int> names;  // of nodes, with the number of the last one that was made from it
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
  bool in_function = false;
};

class Importer {
 public:
  Importer(const OnnxModel& model, OnnxData data, std::span<const OpDef> added)
      : model_(model), data_(std::move(data)), added_(added) {}

  Result<> import(OnnxProgram& program) {
    BOLIDE_TRY(read_functions());
    Opsets opsets;
    for (const OnnxOpset& opset : model_.opsets) opsets[std::string(canonical(opset.domain))] = opset.version;
    for (const auto& [domain, version] : opsets) program.opsets.emplace_back(domain, version);
    Frame frame;
    Scope scope{&frame, nullptr, {}};
    std::map<std::string_view, AnyValue> initialisers;
    BOLIDE_TRY(read_initialisers(model_.graph, initialisers, false));
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
    Context context{&opsets, {}, "", 0, false};
    BOLIDE_TRY(import_nodes(model_.graph.nodes, scope, context));
    std::set<std::string_view> outputs;
    for (const OnnxValueInfo& output : model_.graph.outputs) {
      if (!outputs.insert(output.name).second)
        return error(Code::kInvalid, fmt::format("output {:.200} is listed twice", output.name));
      BOLIDE_TRY(const ValueId value, resolve(scope, output.name).context("the graph's outputs"));
      frame.graph.add_output(std::string(output.name), value);
      program.outputs.push_back({std::string(output.name), output.type});
    }
    program.graph = std::move(frame.graph);
    warn_of_unknown();
    return program.graph.verify();
  }

 private:
  static Error twice(std::string_view what, std::string_view name) {
    return error(Code::kInvalid, fmt::format("{} {:.200} is made twice", what, name));
  }

  // Odd exporters add attributes of their own, which change nothing; a misspelled one would. Each is named once.
  void note_unknown(std::string_view domain, const OnnxNode& node, std::string_view attribute,
                    const std::string& name) {
    if (is_known_attribute(domain, node.op, attribute)) return;
    if (unknown_.size() < kWarningsMax || unknown_.contains({node.op, attribute}))
      ++unknown_.try_emplace({node.op, attribute}, name, 0).first->second.second;
  }
  void warn_of_unknown() const {
    for (const auto& [what, where] : unknown_)
      log::warning("an attribute that the operator does not have in any version is ignored: is it misspelled?",
                   {{"attribute", what.second},
                    {"operator", what.first},
                    {"first_node", std::string_view(where.first)},
                    {"nodes", where.second}});
  }

  Result<> read_functions() {
    for (const OnnxFunction& f : model_.functions) {
      const auto named = [&] { return fmt::format("function {:.200}.{:.200}", f.domain, f.name); };
      if (!functions_.emplace(FunctionKey{canonical(f.domain), f.name, f.overload}, &f).second)
        return error(Code::kInvalid, fmt::format("{} is there twice", named()));
      const std::set<std::string_view> inputs(f.inputs.begin(), f.inputs.end());
      if (inputs.size() != f.inputs.size())
        return error(Code::kInvalid, fmt::format("{} has two inputs of one name", named()));
    }
    return {};
  }

  // Counts bytes that are made beyond those of the file, before they are.
  Result<> charge(uint64_t bytes) {
    expanded_ += std::min(bytes, kExpandedMax + 1);
    if (expanded_ <= kExpandedMax) return {};
    return error(
        Code::kUnsupported,
        fmt::format("needs {} bytes: sparse tensors with their zeros and those of called functions may have {} "
                    "in all; store them as initialisers of the model",
                    bytes, kExpandedMax));
  }
  static uint64_t dense_bytes(int64_t data_type, std::span<const int64_t> dims) {
    const auto dtype = onnx_dtype(data_type);
    uint64_t bytes = dtype.has_value() ? std::max<uint64_t>(element_bytes(*dtype), 1) : 1;
    for (const int64_t dim : dims)
      if (dim >= 0 && mul_overflows(bytes, static_cast<uint64_t>(dim), &bytes)) return UINT64_MAX;
    return bytes;
  }
  Result<Tensor> tensor_of(const OnnxTensor& stored, bool in_function) {
    if (in_function)
      BOLIDE_TRY(
          charge(dense_bytes(stored.data_type, stored.dims)).context(fmt::format("tensor {:.200}", stored.name)));
    return onnx_tensor(stored, data_);
  }
  Result<Tensor> tensor_of(const OnnxSparseTensor& stored) {
    BOLIDE_TRY(charge(dense_bytes(stored.values.data_type, stored.dims))
                   .context(fmt::format("sparse tensor {:.200}", stored.values.name)));
    return onnx_tensor(stored, data_);
  }

  Result<> read_initialisers(const OnnxGraph& graph, std::map<std::string_view, AnyValue>& to, bool in_function) {
    const auto add = [&](std::string_view name, Result<Tensor> tensor) -> Result<> {
      if (!tensor) return std::move(tensor).error().context("initialiser");
      if (!to.emplace(name, *std::move(tensor)).second) return twice("initialiser", name);
      return {};
    };
    for (const OnnxTensor& tensor : graph.initializers) BOLIDE_TRY(add(tensor.name, tensor_of(tensor, in_function)));
    for (const OnnxSparseTensor& tensor : graph.sparse_initializers)
      BOLIDE_TRY(add(tensor.values.name, tensor_of(tensor)));
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
      return error(Code::kUnsupported,
                   fmt::format("lies inside of more than {} functions and bodies (If, Loop, Scan)", kCallsMax));
    for (size_t i = 0; i < nodes.size(); ++i) {
      const OnnxNode& node = nodes[i];
      const std::string name =
          unique_name(*scope.frame,
                      context.prefix + (node.name.empty() ? fmt::format("{}_{}", node.op, i) : std::string(node.name)));
      if (++nodes_ > kNodesMax)
        return error(Code::kInvalid, fmt::format("more than {} nodes, functions expanded", kNodesMax));
      if ((name_bytes_ += name.size()) > kNamesMax)
        return error(Code::kInvalid,
                     fmt::format("names of nodes take more than {} bytes, functions expanded", kNamesMax));
      auto done = import_node(node, scope, context, name);
      if (done) continue;
      // The innermost node's name begins with those of the calls around it: they need not be said again.
      if (std::exchange(is_named_, true)) return done;
      return std::move(done).error().context(
          fmt::format("node {:.200} ({}{}{})", name, node.domain, node.domain.empty() ? "" : ".", node.op));
    }
    return {};
  }

  static std::string unique_name(Frame& frame, std::string name) {
    const auto [it, is_new] = frame.names.try_emplace(name, 1);
    if (is_new) return name;
    int& last = it->second;  // references stay where they are as others are added
    std::string unique;
    do {
      unique = fmt::format("{}#{}", name, ++last);
    } while (!frame.names.try_emplace(unique, 1).second);
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
      BOLIDE_TRY(Attributes::Any value,
                 value_of(attribute, context.in_function).context(fmt::format("attribute {:.100}", attribute.name)));
      if (kept->has(attribute.name)) return twice("attribute", attribute.name);
      if (op.def->is_ours()) note_unknown(domain, node, attribute.name, name);
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
    BOLIDE_TRY(read_initialisers(graph, initialisers, context.in_function));
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
    if (std::find(calls_.begin(), calls_.end(), &function) != calls_.end())
      return error(Code::kInvalid,
                   fmt::format("function {:.200} calls itself, at once or through others", function.name));
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
    Context called{&opsets, {}, name + "/", context.depth + 1, true};
    for (const OnnxAttribute& attribute : function.defaults) called.attributes[attribute.name] = attribute;
    for (const OnnxAttribute& attribute : attributes) called.attributes[attribute.name] = attribute;
    calls_.push_back(&function);
    BOLIDE_TRY(import_nodes(function.nodes, inside, called));
    calls_.pop_back();
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.out[i].empty()) continue;
      BOLIDE_TRY(const ValueId value, resolve(inside, function.outputs[i]));
      BOLIDE_TRY(define(scope, node.out[i], value));
    }
    return {};
  }

  Result<Attributes::Any> value_of(const OnnxAttribute& a, bool in_function) {
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
        BOLIDE_TRY(Tensor tensor, tensor_of(one, in_function));
        list.push_back(std::move(tensor));
      }
      for (const OnnxSparseTensor& one : a.sparse) {
        BOLIDE_TRY(Tensor tensor, tensor_of(one));
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
  std::vector<const OnnxFunction*> calls_;  // that are being expanded, inside of each other
  int64_t nodes_ = 0;
  // Operator and attribute > the first node that has it, and how many there are.
  std::map<std::pair<std::string_view, std::string_view>, std::pair<std::string, int64_t>> unknown_;
  uint64_t name_bytes_ = 0, expanded_ = 0;
  bool is_named_ = false;  // the error that is on its way out names its node
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
