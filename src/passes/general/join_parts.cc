// join_parts: a convolution whose image is a Concat of others' channels, or some channels of another image (Split),
// reads them where they lie: ChannelsLastJoinedConv. A Concat goes if a pointwise convolution alone reads it, a Split
// if only such Concats and convolutions do.
#include <algorithm>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr int kRank = 4;

// An image of f32 whose channels are known.
bool is_image(const Rewriter& r, ValueId value) {
  const Facts& facts = r.facts(value);
  return facts.dtype == DType::kF32 && facts.rank() == kRank && is_number(facts.dims->back());
}

bool is_conv(const Rewriter& r, NodeId id) {
  const Tensor* w = r.is(id, "ChannelsLastConv", "bolide") ? r.constant(r.in(id, 1)) : nullptr;
  return w != nullptr && w->rank() == kRank && r.integer(id, "group", 1) == 1 && is_image(r, r.in(id, 0));
}

bool is_pointwise(const Rewriter& r, NodeId id) {
  const Tensor& w = *r.constant(r.in(id, 1));
  const Numbers strides = r.integers(id, "strides"), pads = r.integers(id, "pads");
  const auto all = [](const Numbers& list, int64_t n) {
    return std::all_of(list.begin(), list.end(), [n](int64_t i) { return i == n; });
  };
  return w.dim(2) == 1 && w.dim(3) == 1 && all(strides, 1) && all(pads, 0) && !r.attributes(id).has("auto_pad");
}

bool is_along_channels(const Rewriter& r, NodeId id, int64_t otherwise) {
  const int64_t axis = r.integer(id, "axis", otherwise);
  return axis == kRank - 1 || axis == -1;
}

// Whether the node is a Concat that goes.
bool joins(const Rewriter& r, NodeId id) {
  if (!r.is(id, "Concat") || !is_along_channels(r, id, 1)) return false;
  const NodeId user = r.only_user(r.out(id));
  const std::vector<ValueId>& in = r.node(id).in;
  return is_conv(r, user) && r.in(user, 0) == r.out(id) && r.in(user, 3) != r.out(id) && is_pointwise(r, user) &&
         std::all_of(in.begin(), in.end(), [&](ValueId v) { return is_image(r, v); });
}

// Whether the node is a Split that goes.
bool splits(const Rewriter& r, NodeId id) {
  if (!r.is(id, "Split") || !is_along_channels(r, id, 0) || !is_image(r, r.in(id, 0))) return false;
  for (const ValueId out : r.node(id).out) {
    if (!is_image(r, out) || r.uses(out) != static_cast<int>(r.users(out).size())) return false;
    for (const NodeId user : r.users(out))
      if (!joins(r, user) && !(is_conv(r, user) && r.in(user, 0) == out && r.in(user, 3) != out)) return false;
  }
  return true;
}

struct Part {
  ValueId value = kNoValue;
  int64_t first = 0, count = 0;
};
Part part_of(const Rewriter& r, ValueId value) {
  const NodeId maker = r.graph().value(value).producer;
  const int64_t count = r.facts(value).dims->back();
  if (maker < 0 || !r.alive(maker) || !splits(r, maker)) return {value, 0, count};
  int64_t first = 0;
  for (const ValueId out : r.node(maker).out) {
    if (out == value) break;
    first += r.facts(out).dims->back();
  }
  return {r.in(maker, 0), first, count};
}

Result<int> join(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.alive(id) || !is_conv(r, id)) continue;
    const ValueId x = r.in(id, 0);
    const NodeId maker = r.graph().value(x).producer;
    std::vector<Part> parts;
    if (maker >= 0 && joins(r, maker))
      for (const ValueId value : r.node(maker).in) parts.push_back(part_of(r, value));
    else if (const Part part = part_of(r, x); part.value != x)
      parts.push_back(part);
    if (parts.empty()) continue;
    std::vector<ValueId> in = {parts[0].value, r.in(id, 1), r.in(id, 2), r.in(id, 3)};
    Numbers numbers;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) in.push_back(parts[i].value);
      numbers.push_back(parts[i].first), numbers.push_back(parts[i].count);
    }
    NamedAttributes attributes = {{"parts", numbers}};
    for (const auto& [name, value] : r.attributes(id).all()) attributes.emplace_back(name, value);
    const NodeId made = r.emit(id, "bolide", "ChannelsLastJoinedConv", 1, std::move(in), std::move(attributes));
    r.replace(r.out(id), r.out(made));
    ++rewrites;
  }
  return rewrites;
}

}  // namespace

Result<int> join_parts(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return join(r); });
}

}  // namespace bolide
