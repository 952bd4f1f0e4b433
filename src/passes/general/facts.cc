#include "passes/general/facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "ir/op_def.h"
#include "passes/general/facts_limits.h"

namespace bolide {
namespace {

bool among(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// What has the type and dims of its first input.
bool is_like_input(std::string_view name) {
  return among(name, {"Relu",
                      "Sigmoid",
                      "Tanh",
                      "Erf",
                      "Sqrt",
                      "Exp",
                      "Log",
                      "Neg",
                      "Abs",
                      "Reciprocal",
                      "Identity",
                      "Softmax",
                      "LogSoftmax",
                      "LeakyRelu",
                      "Elu",
                      "Clip",
                      "HardSigmoid",
                      "HardSwish",
                      "Swish",
                      "Gelu",
                      "Softplus",
                      "Mish",
                      "Floor",
                      "Ceil",
                      "Round",
                      "Sin",
                      "Cos",
                      "LayerNormalization",
                      "BatchNormalization",
                      "InstanceNormalization",
                      "GroupNormalization",
                      "RMSNormalization",
                      "SimplifiedLayerNormalization",
                      "SkipLayerNormalization",
                      "BiasGelu",
                      "FastGelu",
                      "QuickGelu",
                      "Dropout",
                      "LRN",
                      "CumSum",
                      "Sign"});
}

Numbers integers_of(const Tensor& tensor) {
  Numbers list;
  if (tensor.dtype() == DType::kI64)
    list.assign(tensor.as<int64_t>().begin(), tensor.as<int64_t>().end());
  else
    list.assign(tensor.as<int32_t>().begin(), tensor.as<int32_t>().end());
  return list;
}

int64_t product(int64_t a, int64_t b) {
  int64_t of = 0;
  return __builtin_mul_overflow(a, b, &of) ? kDimMax : of;
}

}  // namespace

DType element_type(int64_t onnx) {
  constexpr std::array kTypes = {DType::kNone, DType::kF32, DType::kU8,     DType::kI8,   DType::kU16, DType::kI16,
                                 DType::kI32,  DType::kI64, DType::kString, DType::kBool, DType::kF16, DType::kF64,
                                 DType::kU32,  DType::kU64, DType::kNone,   DType::kNone, DType::kBF16};
  return onnx > 0 && onnx < static_cast<int64_t>(kTypes.size()) ? kTypes[static_cast<size_t>(onnx)] : DType::kNone;
}

Facts facts_of(const Tensor& constant) {
  Facts facts;
  facts.dtype = constant.dtype();
  const auto dims = constant.shape().span();
  facts.dims = Numbers(dims.begin(), dims.end());
  facts.constant = &constant;
  const bool integer = constant.dtype() == DType::kI64 || constant.dtype() == DType::kI32;
  if (integer && constant.rank() <= 1 && constant.elements() <= kValuesMax) facts.values = integers_of(constant);
  return facts;
}

FactsTable::FactsTable(const Graph& graph, const std::vector<Facts>& inputs, int64_t& symbols) : symbols_(symbols) {
  of_.resize(graph.value_count());
  size_t input = 0;
  for (size_t i = 0; i < of_.size(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.kind == ValueKind::kInput && input < inputs.size()) {
      of_[i] = inputs[input++];
      if (of_[i].dims)
        for (int64_t& dim : *of_[i].dims)
          if (dim == Facts::kUnknown) dim = fresh();
    } else if (value.kind == ValueKind::kConstant && value.constant->tensor() != nullptr) {
      of_[i] = facts_of(*value.constant->tensor());
    }
  }
  for (const NodeId id : graph.order()) learn(graph, id);
}

const Facts& FactsTable::operator[](ValueId value) const {
  static const Facts kNothing;
  return value < 0 || static_cast<size_t>(value) >= of_.size() ? kNothing : of_[static_cast<size_t>(value)];
}

void FactsTable::set(ValueId value, Facts facts) {
  if (static_cast<size_t>(value) >= of_.size()) of_.resize(static_cast<size_t>(value) + 1);
  of_[static_cast<size_t>(value)] = std::move(facts);
}

void FactsTable::learn(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const auto* op = std::get_if<Generic>(&node.op);
  for (size_t i = 0; op != nullptr && i < node.out.size(); ++i) {
    Facts facts;
    const std::string_view domain = op->def->domain;
    if (domain.empty() || domain == "com.microsoft" || domain == "bolide") facts = infer(node, *op, i);
    if (facts.rank() > kRankMax) facts.dims.reset();
    set(node.out[i], std::move(facts));
  }
}

// Dims of a broadcast of inputs [first, first + count).
// `dim` is the smaller of `whole` and a number of at least 2: where both are broadcast together, they are equal, or the
// run fails.
bool FactsTable::is_clipped(int64_t whole, int64_t dim) const {
  const auto it = clipped_.find(dim);
  return it != clipped_.end() && it->second == whole;
}

std::optional<Numbers> FactsTable::broadcast(const Node& node, size_t first, size_t count) {
  Numbers to;
  for (size_t i = first; i < first + count; ++i) {
    if (i >= node.in.size() || !(*this)[node.in[i]].dims) return std::nullopt;
    const Numbers& dims = *(*this)[node.in[i]].dims;
    if (dims.size() > to.size()) to.insert(to.begin(), dims.size() - to.size(), 1);
    for (size_t k = 1; k <= dims.size(); ++k) {
      int64_t& into = to[to.size() - k];
      const int64_t dim = dims[dims.size() - k];
      if (dim == into || dim == 1) continue;
      if (into == 1)
        into = dim;
      else if (is_number(dim) && is_symbol(into))
        into = dim;  // the symbol is 1 or the same
      else if (is_symbol(dim) && is_symbol(into) && !is_clipped(into, dim))
        into = is_clipped(dim, into) ? dim : fresh();
    }
  }
  return to;
}

std::optional<Numbers> FactsTable::reshape(const Facts& from, const Numbers& target, bool zero_is_size) {
  Numbers to = target;
  int64_t rest = -1;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 && !zero_is_size)
      to[i] = from.dims && i < from.dims->size() ? (*from.dims)[i] : fresh();
    else if (to[i] == -1)
      rest = static_cast<int64_t>(i);
    else if (to[i] == Facts::kUnknown || (is_number(to[i]) && to[i] < 0))
      to[i] = fresh();
  }
  if (rest < 0) return to;
  int64_t& open = to[static_cast<size_t>(rest)];
  open = fresh();
  if (!from.dims) return to;
  // What of the input's dims is not among the others.
  int64_t above = 1, below = 1;
  Numbers symbols;
  for (const int64_t dim : *from.dims) {
    if (is_symbol(dim))
      symbols.push_back(dim);
    else
      above = product(above, dim);
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (static_cast<int64_t>(i) == rest) continue;
    if (is_number(to[i])) {
      below = product(below, to[i]);
    } else {
      const auto at = std::find(symbols.begin(), symbols.end(), to[i]);
      if (at == symbols.end()) return to;
      symbols.erase(at);
    }
  }
  if (below <= 0 || above <= 0 || above % below != 0 || above >= kDimMax) return to;
  if (symbols.empty())
    open = above / below;
  else if (symbols.size() == 1 && above == below)
    open = symbols[0];
  return to;
}

// Conv and pools: [N, channels, ...].
Facts FactsTable::windowed(const Facts& x, const Node& node, const Generic& op, bool pool) {
  Facts to;
  to.dtype = x.dtype;
  if (!x.dims || x.rank() < 3) return to;
  to.dims = x.dims;
  const size_t spatial = x.dims->size() - 2;
  const Attributes& a = *op.attributes;
  const auto list = [&](std::string_view name, size_t count, int64_t otherwise) {
    const auto given = a.integers(name);
    return given && given->size() == count ? *given : Numbers(count, otherwise);
  };
  Numbers kernel = list("kernel_shape", spatial, Facts::kUnknown);
  if (!pool) {
    const Facts& w = (*this)[node.in.size() > 1 ? node.in[1] : kNoValue];
    (*to.dims)[1] = w.rank() == x.rank() ? (*w.dims)[0] : fresh();
    for (size_t i = 0; i < spatial && w.rank() == x.rank(); ++i) kernel[i] = (*w.dims)[i + 2];
  }
  const Numbers strides = list("strides", spatial, 1), dilations = list("dilations", spatial, 1),
                pads = list("pads", 2 * spatial, 0);
  const auto padding = a.text("auto_pad", "NOTSET");
  const auto ceil = a.integer("ceil_mode", 0);
  const bool plain = padding && *padding == "NOTSET" && ceil && *ceil == 0;
  for (size_t i = 0; i < spatial; ++i) {
    int64_t& dim = (*to.dims)[i + 2];
    const auto small = [](int64_t n) { return n >= 0 && n < (1 << 24); };
    if (!plain || !small(kernel[i]) || !small(dilations[i]) || !small(pads[i]) || !small(pads[i + spatial]) ||
        strides[i] < 1) {
      dim = fresh();
      continue;
    }
    const int64_t change = pads[i] + pads[i + spatial] - dilations[i] * (kernel[i] - 1) - 1;
    if (is_number(dim))
      dim = dim + change < 0 ? 0 : (dim + change) / strides[i] + 1;
    else if (strides[i] != 1 || change != -1)
      dim = fresh();
  }
  return to;
}

// What ops/channels_last.h has: [N, H, W, C].
Facts FactsTable::channels_last(const Facts& x, const Node& node, const Generic& op) {
  Facts to;
  to.dtype = x.dtype;
  if (!x.dims || x.rank() < 3) return to;
  Facts first = x;
  std::rotate(first.dims->begin() + 1, first.dims->end() - 1, first.dims->end());
  if (op.def->name == "ChannelsLastGlobalAveragePool") {
    std::fill(first.dims->begin() + 2, first.dims->end(), 1);
    to = first;
  } else {
    to = windowed(first, node, op, !op.def->name.ends_with("Conv"));
  }
  std::rotate(to.dims->begin() + 1, to.dims->begin() + 2, to.dims->end());
  return to;
}

Facts FactsTable::infer(const Node& node, const Generic& op, size_t output) {
  if (!op.def->is_ours()) return {};
  const std::string_view name = op.def->name;
  const Attributes& a = *op.attributes;
  const auto in = [&](size_t i) -> const Facts& { return (*this)[i < node.in.size() ? node.in[i] : kNoValue]; };
  const Facts& x = in(0);
  Facts to;
  if (node.in.empty()) return to;
  if (among(name, {"Shape", "Gather", "Concat", "Slice", "Squeeze", "Unsqueeze", "Split"}))
    return selected(node, op, output);
  if (name == "DynamicQuantizeLinear") {
    if (output == 1) return {.dtype = DType::kF32, .dims = Numbers{}, .values = {}, .constant = nullptr};
    to.dtype = DType::kU8;
    to.dims = output == 0 ? x.dims : Numbers{};
    return to;
  }
  if (among(name, {"Resize", "Upsample", "Pad", "Tile", "DepthToSpace", "SpaceToDepth"})) return resized(node, op);
  if (output == 3 && among(name, {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})) {
    to.dtype = x.dtype, to.dims = x.dims;  // the sum
    return to;
  }
  if (output > 0) return to;
  if ((op.def->domain == "bolide" && name.starts_with("Q")) || name.starts_with("QLinear") ||
      name.starts_with("MatMulInteger"))
    return quantised(node, op);
  to.dtype = x.dtype;
  if (is_like_input(name)) {
    to.dims = x.dims;
    if (name == "Identity") to.values = x.values;
  } else if (among(name, {"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "PRelu"})) {
    to.dims = op.version < 7 ? x.dims : broadcast(node, 0, node.in.size());
    if (name == "Pow") to.dtype = op.version < 12 || in(1).dtype != DType::kNone ? x.dtype : DType::kNone;
    if (x.values && in(1).values && x.values->size() == 1 && in(1).values->size() == 1 && to.rank() <= 1) {
      const int64_t l = (*x.values)[0], r = (*in(1).values)[0];
      int64_t value = Facts::kUnknown;
      bool fails = !is_number(l) || !is_number(r) || to.dtype != DType::kI64;
      if (!fails && name == "Add") fails = __builtin_add_overflow(l, r, &value);
      if (!fails && name == "Sub") fails = __builtin_sub_overflow(l, r, &value);
      if (!fails && name == "Mul") fails = __builtin_mul_overflow(l, r, &value);
      if (!fails && name == "Div" && l >= 0 && r > 0) value = l / r;
      to.values = Numbers{fails || !is_number(value) ? Facts::kUnknown : value};
    }
  } else if (among(name, {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"})) {
    to.dtype = DType::kBool;
    if (op.version >= 7) to.dims = broadcast(node, 0, 2);
  } else if (name == "Not" || name == "IsNaN" || name == "IsInf") {
    to.dtype = DType::kBool;
    to.dims = x.dims;
  } else if (name == "Where") {
    to.dtype = in(1).dtype;
    to.dims = broadcast(node, 0, 3);
  } else if (name == "Cast") {
    const auto type = a.integer("to", 0);
    to.dtype = type ? element_type(*type) : DType::kNone;
    to.dims = x.dims;
    // A size that i32 cannot hold would fail where it is used.
    if (to.dtype == DType::kI64 || to.dtype == DType::kI32) to.values = x.values;
  } else if (name == "Transpose") {
    const auto perm = a.integers("perm");
    if (!x.dims || !perm) return to;
    to.dims = x.dims;
    if (perm->empty()) std::reverse(to.dims->begin(), to.dims->end());
    for (size_t i = 0; i < perm->size(); ++i) {
      if (perm->size() != x.dims->size() || (*perm)[i] < 0 || (*perm)[i] >= x.rank()) return {};
      (*to.dims)[i] = (*x.dims)[static_cast<size_t>((*perm)[i])];
    }
  } else if (name == "Reshape") {
    const auto zero = a.integer("allowzero", 0);
    const auto old = a.integers("shape");
    if (op.version < 5 && old && a.has("shape"))
      to.dims = reshape(x, *old, false);
    else if (in(1).values && zero)
      to.dims = reshape(x, *in(1).values, *zero != 0);
    else if (in(1).rank() == 1 && is_number((*in(1).dims)[0]) && (*in(1).dims)[0] <= kRankMax)
      to.dims = reshape(x, Numbers(static_cast<size_t>((*in(1).dims)[0]), Facts::kUnknown), false);
  } else if (name == "Expand") {
    const Facts& shape = in(1);
    if (!x.dims) return to;
    if (!shape.values) {
      if (shape.rank() != 1 || !is_number((*shape.dims)[0]) || (*shape.dims)[0] > kRankMax) return to;
      to.dims = Numbers(std::max(x.dims->size(), static_cast<size_t>((*shape.dims)[0])));
      for (int64_t& dim : *to.dims) dim = fresh();
      return to;
    }
    Numbers dims = *x.dims;
    const Numbers& want = *shape.values;
    if (want.size() > dims.size()) dims.insert(dims.begin(), want.size() - dims.size(), 1);
    for (size_t k = 1; k <= want.size(); ++k) {
      int64_t& dim = dims[dims.size() - k];
      const int64_t to_dim = want[want.size() - k];
      if (to_dim == 1 || to_dim == dim) continue;
      dim = dim == 1 && to_dim != Facts::kUnknown ? to_dim : fresh();
    }
    to.dims = dims;
  } else if (name == "MatMul" || name == "FusedMatMul") {
    const Facts& w = in(1);
    if (name == "FusedMatMul" || !x.dims || !w.dims || x.rank() < 2 || w.rank() < 2) return to;
    Numbers dims;
    const size_t batch = static_cast<size_t>(std::max(x.rank(), w.rank())) - 2;
    for (size_t i = batch; i > 0; --i) {
      const auto at = [&](const Facts& f) {
        return f.dims->size() >= i + 2 ? (*f.dims)[f.dims->size() - 2 - i] : int64_t{1};
      };
      dims.push_back(at(x) == at(w) || at(w) == 1 ? at(x) : at(x) == 1 ? at(w) : fresh());
    }
    dims.push_back((*x.dims)[x.dims->size() - 2]);
    dims.push_back(w.dims->back());
    to.dims = dims;
  } else if (name == "Gemm" || name == "FusedGemm") {
    const auto ta = a.integer("transA", 0), tb = a.integer("transB", 0);
    if (x.rank() != 2 || in(1).rank() != 2 || !ta || !tb) return to;
    to.dims = Numbers{(*x.dims)[*ta != 0 ? 1 : 0], (*in(1).dims)[*tb != 0 ? 0 : 1]};
  } else if (name == "Conv" || name == "FusedConv") {
    return windowed(x, node, op, false);
  } else if (name == "MaxPool" || name == "AveragePool") {
    return windowed(x, node, op, true);
  } else if (name.starts_with("ChannelsLast")) {
    return channels_last(x, node, op);
  } else if (name == "Pad") {
    to.dims = x.dims;
    const bool whole = op.version >= 11 && in(1).values && in(3).dtype == DType::kNone && x.dims &&
                       in(1).values->size() == 2 * x.dims->size();
    for (size_t i = 0; to.dims && i < to.dims->size(); ++i) {
      int64_t& dim = (*to.dims)[i];
      const int64_t before = whole ? (*in(1).values)[i] : Facts::kUnknown;
      const int64_t after = whole ? (*in(1).values)[i + to.dims->size()] : Facts::kUnknown;
      if (before == 0 && after == 0) continue;
      const auto small = [](int64_t n) { return is_number(n) && n < (1 << 24) && n > -(1 << 24); };
      dim =
          is_number(dim) && small(before) && small(after) && dim + before + after >= 0 ? dim + before + after : fresh();
    }
  } else if (name == "ConvTranspose") {
    if (x.rank() < 3) return to;
    to.dims = x.dims;
    for (size_t i = 1; i < to.dims->size(); ++i) (*to.dims)[i] = fresh();
  } else if (name == "GlobalAveragePool" || name == "GlobalMaxPool") {
    to.dims = x.dims;
    for (size_t i = 2; to.dims && i < to.dims->size(); ++i) (*to.dims)[i] = 1;
  } else if (name == "Flatten") {
    const auto axis = a.integer("axis", 1);
    if (!axis || !x.dims) return to;
    Numbers dims = {1, 1};
    const int64_t k = *axis < 0 ? *axis + x.rank() : *axis;
    for (int64_t i = 0; i < x.rank(); ++i) {
      int64_t& side = dims[i < k ? 0 : 1];
      const int64_t dim = (*x.dims)[static_cast<size_t>(i)];
      side = side == 1 ? dim : dim == 1 ? side : is_number(side) && is_number(dim) ? product(side, dim) : fresh();
    }
    to.dims = dims;
  } else if (name.starts_with("Reduce")) {
    const auto keep = a.integer("keepdims", 1), skip = a.integer("noop_with_empty_axes", 0);
    const auto listed = a.integers("axes");
    if (!x.dims || !keep || !listed || !skip) return to;
    const bool by_input = node.in.size() > 1 && node.in[1] != kNoValue;
    if (by_input && !in(1).values) return to;
    Numbers axes = by_input ? *in(1).values : *listed;
    if (axes.empty() && *skip != 0) return to;
    if (axes.empty())
      for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
    Numbers dims = *x.dims;
    std::vector<bool> gone(dims.size());
    for (int64_t axis : axes) {
      if (!is_number(axis)) return to;
      if (axis < 0) axis += x.rank();
      if (axis < 0 || axis >= x.rank()) return to;
      gone[static_cast<size_t>(axis)] = true;
    }
    to.dims = Numbers{};
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!gone[i])
        to.dims->push_back(dims[i]);
      else if (*keep != 0)
        to.dims->push_back(1);
    }
  } else if (name == "QuantizeLinear") {
    const bool has_zero = node.in.size() > 2 && node.in[2] != kNoValue;
    to.dtype = has_zero ? in(2).dtype : a.has("output_dtype") ? DType::kNone : DType::kU8;
    to.dims = x.dims;
  } else if (name == "DequantizeLinear") {
    to.dtype = a.has("output_dtype") ? DType::kNone : in(1).dtype;
    to.dims = x.dims;
  } else if (name == "MultiHeadAttention" && node.in.size() > 2) {
    if (x.rank() == 3 && in(2).rank() == 3) to.dims = Numbers{(*x.dims)[0], (*x.dims)[1], (*in(2).dims)[2]};
  } else if (name == "Attention" && op.def->domain.empty()) {
    if (x.rank() == 4 && in(2).rank() == 4)
      to.dims = Numbers{(*x.dims)[0], (*x.dims)[1], (*x.dims)[2], (*in(2).dims)[3]};
    const auto heads = a.integer("q_num_heads", 0), values = a.integer("kv_num_heads", 0);
    if (x.rank() == 3 && in(2).rank() == 3 && heads && values && *heads > 0 && *values > 0) {
      const int64_t width = (*in(2).dims)[2];
      to.dims = Numbers{(*x.dims)[0], (*x.dims)[1], *heads == *values ? width : fresh()};
    }
  } else if (name == "Attention") {
    if (x.rank() == 3 && node.in.size() > 2 && in(2).rank() == 1 && is_number((*in(2).dims)[0])) {
      const auto sizes = a.integers("qkv_hidden_sizes");
      const int64_t all = (*in(2).dims)[0];
      to.dims = Numbers{(*x.dims)[0], (*x.dims)[1], sizes && sizes->size() == 3 ? (*sizes)[2] : all / 3};
    }
  } else if (name == "Dense" && op.def->domain == "bolide") {
    const Facts& w = in(1);
    if (x.rank() < 1 || w.rank() != 2) return to;
    to.dims = x.dims;
    to.dims->back() = w.dims->back();
  } else {
    to.dtype = DType::kNone;
  }
  return to;
}

}  // namespace bolide
