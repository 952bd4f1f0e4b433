// channels_last: convolutions of images [N, C, H, W] run on images with their channels last, and so does what lies
// between them. Nodes are looked at in order. An op of kRows whose input is already there with its channels last takes
// that one (a convolution makes it if need be), and its output is there that way; a Transpose back is made for whoever
// else reads it and goes again if nobody does.
#include <algorithm>
#include <unordered_map>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr int kRank = 4;
constexpr int64_t kPlace[kRank] = {0, 3, 1, 2};  // where an axis of NCHW lies in NHWC

class Layouts;
// False: the node stays as it is.
using Convert = bool (*)(Layouts&, NodeId);

class Layouts {
 public:
  explicit Layouts(Rewriter& rewriter) : r(rewriter) {}

  Rewriter& r;

  bool is_image(ValueId value) const { return r.facts(value).rank() == kRank; }
  bool has(ValueId value) const { return last_.contains(value); }
  // The value with its channels last.
  ValueId get(ValueId value, NodeId place) {
    if (const auto it = last_.find(value); it != last_.end()) return it->second;
    const NodeId made = r.emit(place, "", "Transpose", 13, {value}, {{"perm", Numbers{0, 2, 3, 1}}});
    made_.push_back(made);
    last_.emplace(value, r.out(made));
    return r.out(made);
  }
  // What `made` gives is the node's outputs with their channels last.
  void replace(NodeId id, NodeId made) {
    const std::vector<ValueId> outputs = r.node(id).out;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (r.uses(outputs[i]) == 0) continue;
      const ValueId twin = r.node(made).out[i];
      const NodeId back = r.emit(id, "", "Transpose", 13, {twin}, {{"perm", Numbers{0, 3, 1, 2}}});
      made_.push_back(back);
      last_.emplace(r.out(back), twin);
      r.replace(outputs[i], r.out(back));
    }
  }
  void clean() {
    for (size_t i = made_.size(); i-- > 0;)
      if (r.alive(made_[i])) r.remove_if_dead(made_[i]);
  }

  // The attributes of a node, with those given in place of its own.
  NamedAttributes attributes(NodeId id, NamedAttributes given) const {
    for (const auto& [name, value] : r.attributes(id).all())
      if (std::none_of(given.begin(), given.end(), [&](const auto& one) { return one.first == name; }))
        given.emplace_back(name, value);
    return given;
  }
  // A constant of numbers, one for each axis of NCHW (`halves` times), in the order of NHWC.
  std::optional<ValueId> turned_list(ValueId value, int64_t halves) {
    const Tensor* list = r.constant(value);
    if (list == nullptr || list->rank() != 1 || list->elements() != halves * kRank) return std::nullopt;
    auto made = Tensor::make(list->dtype(), list->shape());
    if (!made) return std::nullopt;
    const size_t bytes = element_bytes(list->dtype());
    for (int64_t half = 0; half < halves; ++half)
      for (int64_t axis = 0; axis < kRank; ++axis)
        std::copy_n(list->data() + static_cast<size_t>(half * kRank + axis) * bytes, bytes,
                    made->mutable_data() + static_cast<size_t>(half * kRank + kPlace[axis]) * bytes);
    return r.add_constant("channels_last", *std::move(made));
  }
  // A constant that is broadcast beside images, of at most 4 dims.
  std::optional<ValueId> turned_operand(ValueId value) {
    const Tensor* operand = r.constant(value);
    if (operand == nullptr || operand->rank() > kRank || operand->is_string()) return std::nullopt;
    Shape shape;
    shape.rank = kRank;
    for (int i = 0; i < kRank; ++i) {
      const int own = i - kRank + operand->rank();
      shape.dims[static_cast<size_t>(i)] = own < 0 ? 1 : operand->dim(own);
    }
    const Shape last{shape[0], shape[2], shape[3], shape[1]};
    auto made = Tensor::make(operand->dtype(), last);
    if (!made) return std::nullopt;
    const size_t bytes = element_bytes(operand->dtype());
    const int64_t plane = shape[2] * shape[3];
    for (int64_t i = 0; i < operand->elements(); ++i) {
      const int64_t n = i / plane / shape[1], c = i / plane % shape[1], to = (n * plane + i % plane) * shape[1] + c;
      std::copy_n(operand->data() + static_cast<size_t>(i) * bytes, bytes,
                  made->mutable_data() + static_cast<size_t>(to) * bytes);
    }
    return r.add_constant("channels_last", *std::move(made));
  }

 private:
  std::unordered_map<ValueId, ValueId> last_;
  std::vector<NodeId> made_;  // Transposes
};

std::optional<int64_t> place_of(int64_t axis) {
  if (axis < 0) axis += kRank;
  if (axis < 0 || axis >= kRank) return std::nullopt;
  return kPlace[axis];
}

bool convolution(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const ValueId x = r.in(id, 0), z = r.in(id, 3);
  const Tensor* w = r.constant(r.in(id, 1));
  if (!l.is_image(x) || r.facts(x).dtype != DType::kF32 || w == nullptr || w->rank() != kRank ||
      w->dtype() != DType::kF32 || (z != kNoValue && !l.is_image(z)))
    return false;
  std::vector<ValueId> in = {l.get(x, id), r.in(id, 1), r.in(id, 2)};
  if (z != kNoValue) in.push_back(l.get(z, id));
  l.replace(id, r.emit(id, "bolide", "ChannelsLastConv", 1, std::move(in), l.attributes(id, {})));
  return true;
}

// Pools: only where the image is there already.
bool pool(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const ValueId x = r.in(id, 0);
  if (!l.has(x) || r.facts(x).dtype != DType::kF32 || r.node(id).out.size() != 1) return false;
  const std::string name = "ChannelsLast" + std::string(r.op(id).def->name);
  l.replace(id, r.emit(id, "bolide", name, 1, {l.get(x, id)}, l.attributes(id, {})));
  return true;
}

// All inputs are images, or constants that are broadcast.
bool elementwise(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const std::vector<ValueId> given = r.node(id).in;
  if (r.node(id).out.size() != 1 || !std::any_of(given.begin(), given.end(), [&](ValueId v) { return l.has(v); }))
    return false;
  std::vector<ValueId> in;
  for (const ValueId value : given) {
    if (value == kNoValue || l.has(value)) continue;
    const Tensor* constant = r.constant(value);
    if (constant == nullptr ? !l.is_image(value) : constant->rank() > kRank || constant->is_string()) return false;
  }
  for (const ValueId value : given) {
    const Tensor* constant = value == kNoValue ? nullptr : r.constant(value);
    if (value == kNoValue || (constant != nullptr && constant->elements() == 1)) {
      in.push_back(value);
    } else if (constant != nullptr) {
      const auto turned = l.turned_operand(value);
      if (!turned) return false;
      in.push_back(*turned);
    } else {
      in.push_back(l.get(value, id));
    }
  }
  l.replace(id, r.emit_like(id, r.op(id), std::move(in)));
  return true;
}
bool elementwise7(Layouts& l, NodeId id) { return l.r.op(id).version >= 7 && elementwise(l, id); }

// An op of the first input with an axis, whose other inputs stay.
bool along_axis(Layouts& l, NodeId id, int64_t otherwise) {
  Rewriter& r = l.r;
  if (!l.has(r.in(id, 0))) return false;
  const auto axis = place_of(r.integer(id, "axis", otherwise));
  if (!axis) return false;
  std::vector<ValueId> in = r.node(id).in;
  in[0] = l.get(in[0], id);
  l.replace(id, r.emit(id, r.op(id).def->domain, r.op(id).def->name, r.op(id).version, std::move(in),
                       l.attributes(id, {{"axis", *axis}}), r.node(id).out.size()));
  return true;
}
bool split(Layouts& l, NodeId id) { return along_axis(l, id, 0); }
bool softmax(Layouts& l, NodeId id) { return l.r.op(id).version >= 13 && along_axis(l, id, -1); }

bool concat(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const std::vector<ValueId> given = r.node(id).in;
  const auto there = std::count_if(given.begin(), given.end(), [&](ValueId v) { return l.has(v); });
  const auto axis = place_of(r.integer(id, "axis", 1));
  if (2 * static_cast<size_t>(there) < given.size() || there == 0 || !axis) return false;
  for (const ValueId value : given)
    if (!l.is_image(value) || r.constant(value) != nullptr) return false;
  std::vector<ValueId> in;
  for (const ValueId value : given) in.push_back(l.get(value, id));
  l.replace(id, r.emit(id, "", "Concat", r.op(id).version, std::move(in), l.attributes(id, {{"axis", *axis}})));
  return true;
}

bool resize(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const int64_t version = r.op(id).version;
  const bool upsample = r.is(id, "Upsample");
  if (!l.has(r.in(id, 0)) || r.attributes(id).has("axes") || (upsample && version < 9)) return false;
  if (const auto mode = r.attributes(id).text("coordinate_transformation_mode", "");
      !mode || mode->starts_with("tf_crop"))
    return false;
  std::vector<ValueId> in = r.node(id).in;
  in[0] = l.get(in[0], id);
  for (size_t i = upsample || version < 11 ? 1 : 2; i < in.size(); ++i) {
    if (in[i] == kNoValue) continue;
    if (const Tensor* list = r.constant(in[i]); list != nullptr && list->elements() == 0) continue;
    const auto turned = l.turned_list(in[i], 1);
    if (!turned) return false;
    in[i] = *turned;
  }
  l.replace(id, r.emit_like(id, r.op(id), std::move(in)));
  return true;
}

bool pad(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  if (!l.has(r.in(id, 0)) || r.op(id).version < 11 || r.in(id, 3) != kNoValue) return false;
  const auto pads = l.turned_list(r.in(id, 1), 2);
  if (!pads) return false;
  l.replace(id, r.emit_like(id, r.op(id), {l.get(r.in(id, 0), id), *pads, r.in(id, 2)}));
  return true;
}

// Axes as an attribute or a constant, in NHWC; nullopt: not known, or all of them.
std::optional<Numbers> places(Layouts& l, NodeId id, size_t input) {
  Rewriter& r = l.r;
  Numbers axes = r.integers(id, "axes");
  if (const ValueId given = r.in(id, input); given != kNoValue) {
    if (!r.facts(given).values || r.constant(given) == nullptr) return std::nullopt;
    axes = *r.facts(given).values;
  }
  if (axes.empty()) return std::nullopt;
  for (int64_t& axis : axes) {
    const auto place = place_of(axis);
    if (!place) return std::nullopt;
    axis = *place;
  }
  return axes;
}

bool reduce(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const bool keeps = r.integer(id, "keepdims", 1) != 0;
  const auto axes = l.has(r.in(id, 0)) ? places(l, id, 1) : std::nullopt;
  if (!axes) return false;
  Numbers sorted = *axes;
  std::sort(sorted.begin(), sorted.end());
  if (!keeps && sorted != Numbers{1, 2}) return false;  // [N, C] is the same of both
  std::vector<ValueId> in = {l.get(r.in(id, 0), id)};
  NamedAttributes attributes = l.attributes(id, {});
  if (r.in(id, 1) != kNoValue)
    in.push_back(r.add_constant("axes", Tensor::vector(DType::kI64, std::span<const int64_t>(*axes))));
  else
    attributes = l.attributes(id, {{"axes", *axes}});
  const NodeId made = r.emit(id, "", r.op(id).def->name, r.op(id).version, std::move(in), std::move(attributes));
  if (keeps)
    l.replace(id, made);
  else
    r.replace(r.out(id), r.out(made));
  return true;
}

bool slice(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  if (!l.has(r.in(id, 0)) || r.op(id).version < 10) return false;
  const auto axes = places(l, id, 3);
  if (!axes) return false;
  std::vector<ValueId> in = r.node(id).in;
  in[0] = l.get(in[0], id);
  in[3] = r.add_constant("axes", Tensor::vector(DType::kI64, std::span<const int64_t>(*axes)));
  l.replace(id, r.emit_like(id, r.op(id), std::move(in)));
  return true;
}

bool transpose(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const Numbers perm = r.integers(id, "perm");
  if (!l.has(r.in(id, 0)) || perm.size() != kRank) return false;
  Numbers own;
  for (const int64_t axis : perm) {
    if (axis < 0 || axis >= kRank) return false;
    own.push_back(kPlace[axis]);
  }
  const ValueId twin = l.get(r.in(id, 0), id);
  const bool same = std::is_sorted(own.begin(), own.end());
  r.replace(r.out(id), same ? twin : r.out(r.emit(id, "", "Transpose", 13, {twin}, {{"perm", own}})));
  return true;
}

// The dims of the twin in the order of NCHW: for these alone nothing has to be turned.
bool shape(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  if (!l.has(r.in(id, 0)) || r.attributes(id).has("start") || r.attributes(id).has("end")) return false;
  const NodeId dims = r.emit_like(id, r.op(id), {l.get(r.in(id, 0), id)});
  const ValueId order = r.add_constant("order", Tensor::vector(DType::kI64, std::span<const int64_t>(kPlace)));
  r.replace(r.out(id), r.out(r.emit(id, "", "Gather", 13, {r.out(dims), order}, {{"axis", int64_t{0}}})));
  return true;
}

// One pixel: both orders are the same memory.
bool flatten(Layouts& l, NodeId id) {
  Rewriter& r = l.r;
  const ValueId x = r.in(id, 0);
  const Facts& facts = r.facts(x);
  if (!l.has(x) || !facts.dims || (*facts.dims)[2] != 1 || (*facts.dims)[3] != 1) return false;
  std::vector<ValueId> in = r.node(id).in;
  if (r.is(id, "Reshape")) {
    const auto& target = r.facts(in.size() > 1 ? in[1] : kNoValue).values;
    if (!target || target->size() != 2 || r.integer(id, "allowzero", 0) != 0) return false;
    if (!is_number((*target)[0]) || (*target)[0] < -1 || !is_number((*target)[1]) || (*target)[1] == 0) return false;
  } else if (r.integer(id, "axis", 1) != 1) {
    return false;
  }
  in[0] = l.get(x, id);
  const NodeId made = r.emit_like(id, r.op(id), std::move(in));
  r.replace(r.out(id), r.out(made));
  return true;
}

struct Row {
  std::string_view domain, name;
  Convert convert;
};
constexpr Row kRows[] = {
    {"", "Conv", convolution},
    {"com.microsoft", "FusedConv", convolution},
    {"", "MaxPool", pool},
    {"", "AveragePool", pool},
    {"", "GlobalAveragePool", pool},
    {"", "Resize", resize},
    {"", "Upsample", resize},
    {"", "Concat", concat},
    {"", "Split", split},
    {"", "Softmax", softmax},
    {"", "Pad", pad},
    {"", "ReduceMean", reduce},
    {"", "ReduceMax", reduce},
    {"", "ReduceSum", reduce},
    {"", "Slice", slice},
    {"", "Transpose", transpose},
    {"", "Shape", shape},
    {"", "Flatten", flatten},
    {"", "Reshape", flatten},
    {"", "Relu", elementwise},
    {"", "Sigmoid", elementwise},
    {"", "Tanh", elementwise},
    {"", "Erf", elementwise},
    {"", "Sqrt", elementwise},
    {"", "Exp", elementwise},
    {"", "Log", elementwise},
    {"", "Neg", elementwise},
    {"", "Abs", elementwise},
    {"", "Floor", elementwise},
    {"", "Ceil", elementwise},
    {"", "LeakyRelu", elementwise},
    {"", "HardSigmoid", elementwise},
    {"", "HardSwish", elementwise},
    {"", "Gelu", elementwise},
    {"", "Swish", elementwise},
    {"", "Mish", elementwise},
    {"", "Elu", elementwise},
    {"", "Softplus", elementwise},
    {"", "Clip", elementwise},
    {"", "Cast", elementwise},
    {"", "PRelu", elementwise7},
    {"", "Add", elementwise7},
    {"", "Sub", elementwise7},
    {"", "Mul", elementwise7},
    {"", "Div", elementwise7},
    {"", "Pow", elementwise7},
    {"", "Max", elementwise},
    {"", "Min", elementwise},
    {"", "Sum", elementwise},
};

Result<int> convert(Rewriter& r) {
  Layouts layouts(r);
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.alive(id)) continue;
    const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                   [&](const Row& one) { return r.is(id, one.name, one.domain); });
    if (row != std::end(kRows)) rewrites += row->convert(layouts, id);
  }
  layouts.clean();
  return rewrites;
}

}  // namespace

Result<int> channels_last(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return convert(r); });
}

}  // namespace bolide
