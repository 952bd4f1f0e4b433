#include <fmt/format.h>

#include <algorithm>

#include "ops/moves.h"
#include "ops/ops.h"

namespace bolide {
namespace {

// Whatever a file asks for, a loop ends.
constexpr int64_t kIterationsMax = int64_t{1} << 30;

Result<bool> condition_of(const AnyValue& value, std::string_view what) {
  const Tensor* tensor = value.tensor();
  if (tensor == nullptr || tensor->dtype() != DType::kBool || tensor->elements() != 1)
    return error(Code::kInvalid, fmt::format("{} is not one bool", what));
  return tensor->as<uint8_t>()[0] != 0;
}

AnyValue value_or_nothing(const RunContext& c, size_t i) { return c.has(i) ? *c.value(i) : AnyValue(); }

// What a body gave in each of its runs for one of its outputs.
struct Collected {
  std::vector<Tensor> pieces;

  Result<> add(const AnyValue& value, size_t output) {
    const Tensor* tensor = value.tensor();
    if (tensor == nullptr) return error(Code::kInvalid, fmt::format("output {} of the body is no tensor", output));
    pieces.push_back(*tensor);
    return {};
  }
  Result<Tensor> stack(int64_t axis, bool reverse, TensorPool& pool) const {
    // No run has told the type and the dims: an empty vector stands for them.
    if (pieces.empty()) return Tensor::make(DType::kF32, {0}, pool);
    std::vector<const Tensor*> list;
    for (const Tensor& piece : pieces) list.push_back(&piece);
    if (reverse) std::reverse(list.begin(), list.end());
    return stacked(list, axis, pool);
  }
};

Result<> run_if(RunContext& c) {
  BOLIDE_TRY(const Tensor* given, c.tensor(0));
  BOLIDE_TRY(const bool condition, condition_of(*given, "the condition"));
  BOLIDE_TRY(std::vector<AnyValue> out, c.run_body(condition ? "then_branch" : "else_branch", {}));
  if (out.size() < c.outputs())
    return error(Code::kInvalid, fmt::format("the branch has {} outputs, expected {}", out.size(), c.outputs()));
  for (size_t i = 0; i < c.outputs(); ++i) c.set(i, std::move(out[i]));
  return {};
}

// body(iteration, condition, carried ...) -> condition, carried ..., collected ...
Result<> run_loop(RunContext& c) {
  int64_t most = INT64_MAX;
  if (c.has(0)) {
    BOLIDE_TRY(const std::vector<int64_t> given, c.integers(0, {}, 1));
    if (given.size() != 1) return error(Code::kInvalid, "the number of iterations has no element");
    most = given[0];
  }
  bool go = true;
  if (c.has(1)) {
    BOLIDE_TRY(go, condition_of(*c.value(1), "the condition"));
  }
  const size_t carried = c.inputs() < 2 ? 0 : c.inputs() - 2;
  std::vector<AnyValue> state;
  for (size_t i = 0; i < carried; ++i) state.push_back(value_or_nothing(c, i + 2));
  if (c.outputs() < carried)
    return error(Code::kInvalid, fmt::format("{} outputs for {} carried values", c.outputs(), carried));
  std::vector<Collected> collected(c.outputs() - carried);
  for (int64_t iteration = 0; go && iteration < most; ++iteration) {
    if (iteration >= kIterationsMax)
      return error(Code::kInvalid, fmt::format("more than {} iterations", kIterationsMax));
    std::vector<AnyValue> in{Tensor::scalar(DType::kI64, iteration), Tensor::scalar(DType::kBool, uint8_t{1})};
    for (AnyValue& value : state) in.push_back(std::move(value));
    BOLIDE_TRY(std::vector<AnyValue> out, c.run_body("body", std::move(in)));
    if (out.size() < 1 + c.outputs())
      return error(Code::kInvalid, fmt::format("the body has {} outputs, expected {}", out.size(), 1 + c.outputs()));
    BOLIDE_TRY(go, condition_of(out[0], "output 0 of the body"));
    for (size_t i = 0; i < carried; ++i) state[i] = std::move(out[1 + i]);
    for (size_t i = 0; i < collected.size(); ++i) BOLIDE_TRY(collected[i].add(out[1 + carried + i], 1 + carried + i));
  }
  for (size_t i = 0; i < carried; ++i) c.set(i, std::move(state[i]));
  for (size_t i = 0; i < collected.size(); ++i) {
    BOLIDE_TRY(Tensor all, collected[i].stack(0, false, c.pool()));
    c.set(carried + i, std::move(all));
  }
  return {};
}

// body(states ..., one item of each scanned input ...) -> states ..., one item of each collected output ...
struct Scan {
  std::vector<AnyValue> states;
  std::vector<Tensor> scanned;
  std::vector<int> axes;
  std::vector<bool> backward;  // of inputs
  std::vector<Collected> collected;

  Result<> run(RunContext& c, int64_t length) {
    for (int64_t step = 0; step < length; ++step) {
      std::vector<AnyValue> in = std::move(states);
      for (size_t i = 0; i < scanned.size(); ++i) {
        const int64_t at = backward[i] ? length - 1 - step : step;
        BOLIDE_TRY(Tensor item, item_of(scanned[i], axes[i], at, c.pool()));
        in.emplace_back(std::move(item));
      }
      const size_t kept = in.size() - scanned.size();
      BOLIDE_TRY(std::vector<AnyValue> out, c.run_body("body", std::move(in)));
      if (out.size() != kept + collected.size())
        return error(Code::kInvalid,
                     fmt::format("the body has {} outputs, expected {}", out.size(), kept + collected.size()));
      states.assign(out.begin(), out.begin() + static_cast<int64_t>(kept));
      for (size_t i = 0; i < collected.size(); ++i) BOLIDE_TRY(collected[i].add(out[kept + i], kept + i));
    }
    return {};
  }
};

struct ScanCounts {
  size_t states = 0, scanned = 0, collected = 0;
};
Result<ScanCounts> counts_of(const RunContext& c, size_t before) {
  BOLIDE_TRY(const int64_t scanned, c.attributes().integer("num_scan_inputs", 0));
  if (scanned < 1 || c.inputs() < before || static_cast<size_t>(scanned) > c.inputs() - before)
    return error(Code::kInvalid, fmt::format("num_scan_inputs {} of {} inputs", scanned, c.inputs()));
  const size_t states = c.inputs() - before - static_cast<size_t>(scanned);
  if (c.outputs() < states) return error(Code::kInvalid, fmt::format("{} outputs for {} states", c.outputs(), states));
  return ScanCounts{states, static_cast<size_t>(scanned), c.outputs() - states};
}

// One number for each of n inputs or outputs, 0 if the attribute is absent.
Result<std::vector<int64_t>> numbers_for(const RunContext& c, std::string_view name, size_t n) {
  BOLIDE_TRY(std::vector<int64_t> list, c.attributes().integers(name));
  if (list.empty()) list.assign(n, 0);
  if (list.size() != n)
    return error(Code::kInvalid, fmt::format("attribute {} has {} numbers, expected {}", name, list.size(), n));
  return list;
}

Result<> run_scan(RunContext& c) {
  BOLIDE_TRY(const ScanCounts n, counts_of(c, 0));
  BOLIDE_TRY(const std::vector<int64_t> axes, numbers_for(c, "scan_input_axes", n.scanned));
  BOLIDE_TRY(const std::vector<int64_t> directions, numbers_for(c, "scan_input_directions", n.scanned));
  BOLIDE_TRY(const std::vector<int64_t> out_axes, numbers_for(c, "scan_output_axes", n.collected));
  BOLIDE_TRY(const std::vector<int64_t> out_directions, numbers_for(c, "scan_output_directions", n.collected));
  Scan scan;
  scan.collected.resize(n.collected);
  for (size_t i = 0; i < n.states; ++i) scan.states.push_back(value_or_nothing(c, i));
  int64_t length = -1;
  for (size_t i = 0; i < n.scanned; ++i) {
    BOLIDE_TRY(const Tensor* x, c.tensor(n.states + i));
    BOLIDE_TRY(const int axis, axis_of(axes[i], x->rank()));
    if (length >= 0 && x->dim(axis) != length)
      return error(Code::kInvalid,
                   fmt::format("input {} has {} items, those before it {}", n.states + i, x->dim(axis), length));
    length = x->dim(axis);
    scan.scanned.push_back(*x);
    scan.axes.push_back(axis);
    scan.backward.push_back(directions[i] != 0);
  }
  BOLIDE_TRY(scan.run(c, length));
  for (size_t i = 0; i < n.states; ++i) c.set(i, std::move(scan.states[i]));
  for (size_t i = 0; i < n.collected; ++i) {
    BOLIDE_TRY(Tensor all, scan.collected[i].stack(out_axes[i], out_directions[i] != 0, c.pool()));
    c.set(n.states + i, std::move(all));
  }
  return {};
}

// The first version: axis 0 of everything is a batch whose members are scanned alone, along axis 1.
Result<> run_scan_of_batch(RunContext& c) {
  BOLIDE_TRY(const ScanCounts n, counts_of(c, 1));
  BOLIDE_TRY(const std::vector<int64_t> directions, numbers_for(c, "directions", n.scanned));
  BOLIDE_TRY(const std::vector<int64_t> lengths, c.integers(0));
  int64_t batch = -1, longest = -1;
  for (size_t i = 0; i < n.states + n.scanned; ++i) {
    BOLIDE_TRY(const Tensor* x, c.tensor(1 + i));
    const bool is_scanned = i >= n.states;
    if (x->rank() < (is_scanned ? 2 : 1) || (batch >= 0 && x->dim(0) != batch) ||
        (is_scanned && longest >= 0 && x->dim(1) != longest))
      return error(Code::kInvalid, fmt::format("input {} is {}: another batch or length than those before it", 1 + i,
                                               to_string(x->shape())));
    batch = x->dim(0);
    if (is_scanned) longest = x->dim(1);
  }
  if (c.has(0) && static_cast<int64_t>(lengths.size()) != batch)
    return error(Code::kInvalid, fmt::format("{} lengths for a batch of {}", lengths.size(), batch));
  std::vector<Collected> results(c.outputs());
  for (int64_t member = 0; member < batch; ++member) {
    const int64_t length = lengths.empty() ? longest : lengths[static_cast<size_t>(member)];
    if (length < 0 || length > longest)
      return error(Code::kInvalid, fmt::format("length {} of at most {} items", length, longest));
    Scan scan;
    scan.collected.resize(n.collected);
    for (size_t i = 0; i < n.states + n.scanned; ++i) {
      BOLIDE_TRY(const Tensor* x, c.tensor(1 + i));
      BOLIDE_TRY(Tensor mine, item_of(*x, 0, member, c.pool()));
      if (i < n.states) {
        scan.states.emplace_back(std::move(mine));
      } else {
        scan.scanned.push_back(std::move(mine));
        scan.axes.push_back(0);
        scan.backward.push_back(directions[i - n.states] != 0);
      }
    }
    BOLIDE_TRY(scan.run(c, length));
    for (size_t i = 0; i < n.states; ++i) BOLIDE_TRY(results[i].add(scan.states[i], i));
    for (size_t i = 0; i < n.collected; ++i) {
      BOLIDE_TRY(const Tensor mine, scan.collected[i].stack(0, false, c.pool()));
      Shape shape = mine.shape();
      shape[0] = longest;
      BOLIDE_TRY(Tensor padded, c.scratch(mine.dtype(), shape));
      clear(padded);
      copy_block(mine, 0, padded, 0, mine.elements());
      results[n.states + i].pieces.push_back(std::move(padded));
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    BOLIDE_TRY(Tensor all, results[i].stack(0, false, c.pool()));
    c.set(i, std::move(all));
  }
  return {};
}

// body(an item of each sequence, each tensor as it is) -> an item of each output
Result<> run_sequence_map(RunContext& c) {
  size_t length = 0;
  for (size_t i = 0; i < std::max<size_t>(c.inputs(), 1); ++i) {
    const ValueSequence* sequence = c.has(i) ? c.value(i)->sequence() : nullptr;
    if (i == 0 && sequence == nullptr) return error(Code::kInvalid, "input 0 is no sequence");
    if (sequence == nullptr) continue;
    if (i > 0 && sequence->items.size() != length)
      return error(Code::kInvalid,
                   fmt::format("input {} has {} items, input 0 has {}", i, sequence->items.size(), length));
    length = sequence->items.size();
  }
  std::vector<std::shared_ptr<ValueSequence>> results(c.outputs());
  for (auto& result : results) result = std::make_shared<ValueSequence>();
  for (size_t item = 0; item < length; ++item) {
    std::vector<AnyValue> in;
    for (size_t i = 0; i < c.inputs(); ++i) {
      const ValueSequence* sequence = c.has(i) ? c.value(i)->sequence() : nullptr;
      in.push_back(sequence != nullptr ? sequence->items[item] : value_or_nothing(c, i));
    }
    BOLIDE_TRY(std::vector<AnyValue> out, c.run_body("body", std::move(in)));
    if (out.size() < results.size())
      return error(Code::kInvalid, fmt::format("the body has {} outputs, expected {}", out.size(), results.size()));
    for (size_t i = 0; i < results.size(); ++i) results[i]->items.push_back(std::move(out[i]));
  }
  for (size_t i = 0; i < results.size(); ++i) c.set(i, std::shared_ptr<const ValueSequence>(std::move(results[i])));
  return {};
}

// Bodies may hold ops of chance.
constexpr OpDef kOps[] = {
    {.domain = "", .name = "If", .since = 1, .run = run_if, .pure = false},
    {.domain = "", .name = "Loop", .since = 1, .run = run_loop, .pure = false},
    {.domain = "", .name = "Scan", .since = 8, .run = run_scan_of_batch, .pure = false},
    {.domain = "", .name = "Scan", .since = 9, .run = run_scan, .pure = false},
    {.domain = "", .name = "SequenceMap", .since = 17, .run = run_sequence_map, .pure = false},
};

}  // namespace

std::span<const OpDef> control_ops() { return kOps; }

}  // namespace bolide
