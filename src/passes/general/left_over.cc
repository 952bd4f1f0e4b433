#include "passes/general/left_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr std::array<std::string_view, 8> kActivations = {"Relu",  "Sigmoid",   "Tanh",        "Clip",
                                                          "Swish", "LeakyRelu", "HardSigmoid", "HardSwish"};

bool is_any(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

class Reasons {
 public:
  Reasons(const Rewriter& r) : r_(r) {}

  std::string of(NodeId id) const {
    const std::string_view name = name_of(id);
    if (name == "BatchNormalization") return normalisation(id);
    if (std::find(kActivations.begin(), kActivations.end(), name) != kActivations.end()) return activation(id);
    if (name == "Add") return sum(id);
    if (name == "Transpose") return transpose(id);
    if (name == "Softmax") return softmax(id);
    if (name == "Erf") return "its neighbours are not those of a GELU";
    if (name == "ReduceMean" && std::any_of(r_.users(r_.out(id)).begin(), r_.users(r_.out(id)).end(),
                                            [&](NodeId user) { return name_of(user) == "Sub"; }))
      return "its neighbours are not those of a LayerNormalization over the last axes with constant scale and bias";
    if (name == "QuantizeLinear" || name == "DequantizeLinear") return quantised(id);
    return {};
  }

 private:
  std::string_view name_of(NodeId id) const { return id < 0 ? "" : r_.op(id).def->name; }
  NodeId maker(NodeId id, size_t input) const {
    const ValueId value = r_.in(id, input);
    return value == kNoValue ? -1 : r_.graph().value(value).producer;
  }
  std::string maker_text(NodeId id) const {
    return id < 0 ? std::string("an input or a constant") : std::string(name_of(id));
  }

  // Why nothing is fused into the product that makes the input, whatever follows; empty: nothing forbids it.
  std::string shared(NodeId product) const {
    if (const int uses = r_.uses(r_.out(product)); uses > 1)
      return fmt::format("the result of {} has {} readers", name_of(product), uses);
    return {};
  }

  std::string normalisation(NodeId id) const {
    const NodeId product = maker(id, 0);
    if (!is_any(name_of(product), {"Conv", "ConvTranspose", "Gemm"}))
      return fmt::format("it follows {}, no Conv or Gemm", maker_text(product));
    for (size_t i = 1; i < 5; ++i)
      if (r_.constant(r_.in(id, i)) == nullptr) return "its scale, bias or statistics are no constants";
    if (std::string why = shared(product); !why.empty()) return why;
    if (r_.constant(r_.in(product, 1)) == nullptr)
      return fmt::format("the weights of {} are no constant", name_of(product));
    return "types or shapes do not fit";
  }

  std::string activation(NodeId id) const {
    const NodeId product = maker(id, 0);
    if (!is_any(name_of(product), {"Conv", "FusedConv", "Gemm", "FusedGemm"})) return {};
    if (std::string why = shared(product); !why.empty()) return why;
    if (r_.attributes(product).has("activation")) return fmt::format("{} has an activation already", name_of(product));
    return "its parameters are none that fused operators have";
  }

  std::string sum(NodeId id) const {
    for (const size_t i : {0, 1}) {
      const NodeId product = maker(id, i);
      if (!is_any(name_of(product), {"Conv", "FusedConv"})) continue;
      if (r_.attributes(product).has("activation"))
        return fmt::format("{} has an activation, the sum comes behind it", name_of(product));
      if (std::string why = shared(product); !why.empty()) return why;
      const Facts &a = r_.facts(r_.in(id, 0)), &b = r_.facts(r_.in(id, 1));
      if (!a.dims || !b.dims || *a.dims != *b.dims) return "its inputs are not known to have one shape";
    }
    return {};
  }

  std::string transpose(NodeId id) const {
    std::string readers;
    for (const NodeId user : r_.users(r_.out(id)))
      readers += fmt::format("{}{}", readers.empty() ? "" : ", ", name_of(user));
    return fmt::format("it stands between {} and {}, and moves past neither", maker_text(maker(id, 0)),
                       readers.empty() ? "an output" : readers);
  }

  // softmax(q k^T) v that is no Attention.
  std::string softmax(NodeId id) const {
    const NodeId reader = r_.only_user(r_.out(id));
    if (name_of(reader) != "MatMul") return {};
    if (r_.facts(r_.in(id, 0)).rank() != 4 || r_.facts(r_.in(reader, 1)).rank() != 4)
      return "no Attention: its values are not known to have four dims";
    return "no Attention: what is added to the scores does not broadcast to them, or q, k and v are made otherwise";
  }

  std::string quantised(NodeId id) const {
    const bool quantises = name_of(id) == "QuantizeLinear";
    if (quantises) return fmt::format("{} before it computes in floats", maker_text(maker(id, 0)));
    std::string readers;
    for (const NodeId user : r_.users(r_.out(id)))
      readers += fmt::format("{}{}", readers.empty() ? "" : ", ", name_of(user));
    return fmt::format("{} behind it computes in floats", readers.empty() ? "an output" : readers);
  }

  const Rewriter& r_;
};

}  // namespace

std::vector<LeftOver> left_over(const Graph& graph, const std::vector<Facts>& inputs) {
  Graph copy = graph;  // a Rewriter may change its graph; this one does not
  int64_t symbols = 0;
  for (const Facts& facts : inputs)
    if (facts.dims)
      for (const int64_t dim : *facts.dims)
        if (is_symbol(dim)) symbols = std::max(symbols, kSymbols0 - dim);
  FactsTable table(copy, inputs, symbols);
  const Rewriter rewriter(copy, table);
  const Reasons reasons(rewriter);
  std::vector<LeftOver> list;
  for (const NodeId id : rewriter.order())
    if (std::string why = reasons.of(id); !why.empty())
      list.push_back({rewriter.node(id).name, std::string(rewriter.op(id).def->name), std::move(why)});
  return list;
}

}  // namespace bolide
