#include <fmt/format.h>

#include <algorithm>

#include "ops/moves.h"
#include "ops/ops.h"

namespace bolide {
namespace {

using Items = std::vector<AnyValue>;

AnyValue sequence_of(Items items) {
  auto made = std::make_shared<ValueSequence>();
  made->items = std::move(items);
  return std::shared_ptr<const ValueSequence>(std::move(made));
}

Result<const Items*> items_of(const RunContext& c, size_t i) {
  const ValueSequence* sequence = c.has(i) ? c.value(i)->sequence() : nullptr;
  if (sequence == nullptr) return error(Code::kInvalid, fmt::format("input {} is no sequence", i));
  return &sequence->items;
}

// The position that input i asks for, negative ones from the end; `otherwise` if it is absent.
Result<int64_t> position_of(const RunContext& c, size_t i, int64_t count, int64_t otherwise) {
  if (!c.has(i)) return otherwise;
  BOLIDE_TRY(const std::vector<int64_t> given, c.integers(i, {}, 1));
  if (given.size() != 1) return error(Code::kInvalid, "the position has no element");
  if (given[0] < -count || given[0] > count)
    return error(Code::kInvalid, fmt::format("position {} of {} items", given[0], count));
  return given[0] < 0 ? given[0] + count : given[0];
}

Result<> run_construct(RunContext& c) {
  Items items;
  for (size_t i = 0; i < c.inputs(); ++i) {
    BOLIDE_TRY(const Tensor* item, c.tensor(i));
    items.emplace_back(*item);
  }
  c.set(0, sequence_of(std::move(items)));
  return {};
}

Result<> run_empty(RunContext& c) {
  c.set(0, sequence_of({}));
  return {};
}

Result<> run_at(RunContext& c) {
  BOLIDE_TRY(const Items* items, items_of(c, 0));
  const auto count = static_cast<int64_t>(items->size());
  BOLIDE_TRY(const int64_t at, position_of(c, 1, count, count));
  if (at >= count) return error(Code::kInvalid, fmt::format("position {} of {} items", at, count));
  c.set(0, (*items)[static_cast<size_t>(at)]);
  return {};
}

Result<> run_insert(RunContext& c) {
  BOLIDE_TRY(const Items* items, items_of(c, 0));
  BOLIDE_TRY(const Tensor* item, c.tensor(1));
  const auto count = static_cast<int64_t>(items->size());
  BOLIDE_TRY(const int64_t at, position_of(c, 2, count, count));
  if (const Tensor* first = items->empty() ? nullptr : (*items)[0].tensor();
      first != nullptr && first->dtype() != item->dtype())
    return error(Code::kInvalid, fmt::format("a tensor of {} for a sequence of {}", to_string(item->dtype()),
                                             to_string(first->dtype())));
  Items longer = *items;
  longer.insert(longer.begin() + at, *item);
  c.set(0, sequence_of(std::move(longer)));
  return {};
}

Result<> run_erase(RunContext& c) {
  BOLIDE_TRY(const Items* items, items_of(c, 0));
  const auto count = static_cast<int64_t>(items->size());
  BOLIDE_TRY(const int64_t at, position_of(c, 1, count, count - 1));
  if (at < 0 || at >= count) return error(Code::kInvalid, fmt::format("position {} of {} items", at, count));
  Items shorter = *items;
  shorter.erase(shorter.begin() + at);
  c.set(0, sequence_of(std::move(shorter)));
  return {};
}

Result<> run_length(RunContext& c) {
  BOLIDE_TRY(const Items* items, items_of(c, 0));
  c.set(0, Tensor::scalar(DType::kI64, static_cast<int64_t>(items->size())));
  return {};
}

Result<> run_split(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t given_axis, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int axis, axis_of(given_axis, x->rank()));
  BOLIDE_TRY(const int64_t keep, c.attributes().integer("keepdims", 1));
  BOLIDE_TRY(std::vector<int64_t> lengths, c.integers(1));
  const int64_t dim = x->dim(axis);
  bool same_rank = true;
  BOLIDE_TRY(const Tensor* split, c.tensor_if(1));
  constexpr int64_t kPartsMax = 1 << 24;
  if (split == nullptr || split->rank() == 0) {
    const int64_t length = split == nullptr ? 1 : lengths[0];
    if (length < 1) return error(Code::kInvalid, fmt::format("parts of {}", length));
    if (dim / length > kPartsMax) return error(Code::kInvalid, fmt::format("{} parts", dim / length));
    lengths.clear();
    for (int64_t at = 0; at < dim; at += std::min(length, dim - at)) lengths.push_back(std::min(length, dim - at));
    same_rank = split != nullptr || keep != 0;
  }
  Items items;
  int64_t at = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > dim - at)
      return error(Code::kInvalid, fmt::format("a part of {} after {} of {}", length, at, dim));
    BOLIDE_TRY(Tensor part, same_rank ? part_of(*x, axis, at, length, c.pool()) : item_of(*x, axis, at, c.pool()));
    items.emplace_back(std::move(part));
    at += length;
  }
  if (at != dim) return error(Code::kInvalid, fmt::format("parts of {} in all, axis {} has {}", at, axis, dim));
  c.set(0, sequence_of(std::move(items)));
  return {};
}

Result<> run_concat(RunContext& c) {
  BOLIDE_TRY(const Items* items, items_of(c, 0));
  if (!c.attributes().has("axis")) return error(Code::kInvalid, "has no attribute axis");
  BOLIDE_TRY(const int64_t axis, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int64_t new_axis, c.attributes().integer("new_axis", 0));
  std::vector<const Tensor*> parts;
  for (const AnyValue& item : *items) {
    if (item.tensor() == nullptr) return error(Code::kInvalid, "an item of the sequence is no tensor");
    parts.push_back(item.tensor());
  }
  BOLIDE_TRY(Tensor all, new_axis != 0 ? stacked(parts, axis, c.pool()) : concatenated(parts, axis, c.pool()));
  c.set(0, std::move(all));
  return {};
}

Result<> run_optional(RunContext& c) {
  c.set(0, c.has(0) ? *c.value(0) : AnyValue());
  return {};
}

Result<> run_get(RunContext& c) {
  if (!c.has(0) || !c.value(0)->has_value()) return error(Code::kInvalid, "the optional is empty");
  c.set(0, *c.value(0));
  return {};
}

Result<> run_has(RunContext& c) {
  c.set(0, Tensor::scalar(DType::kBool, static_cast<uint8_t>(c.has(0) && c.value(0)->has_value())));
  return {};
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "SequenceConstruct", .since = 11, .run = run_construct},
    {.domain = "", .name = "SequenceEmpty", .since = 11, .run = run_empty},
    {.domain = "", .name = "SequenceAt", .since = 11, .run = run_at},
    {.domain = "", .name = "SequenceInsert", .since = 11, .run = run_insert},
    {.domain = "", .name = "SequenceErase", .since = 11, .run = run_erase},
    {.domain = "", .name = "SequenceLength", .since = 11, .run = run_length},
    {.domain = "", .name = "SplitToSequence", .since = 11, .run = run_split},
    {.domain = "", .name = "ConcatFromSequence", .since = 11, .run = run_concat},
    {.domain = "", .name = "Optional", .since = 15, .run = run_optional},
    {.domain = "", .name = "OptionalGetElement", .since = 15, .run = run_get},
    {.domain = "", .name = "OptionalHasElement", .since = 15, .run = run_has},
};

}  // namespace

std::span<const OpDef> sequence_ops() { return kOps; }

}  // namespace bolide
