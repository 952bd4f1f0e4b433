#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/log.h"

namespace bolide {
namespace {

// Of values in the arena: a cache line of the CPU; what GPUs' copies and libraries like best.
size_t alignment_of(const DeviceInfo& device) { return device.id.kind == DeviceKind::kCpu ? 64 : 256; }
constexpr uint64_t kActivationBytesMax = uint64_t{1} << 60;

// The types of a node's inputs and outputs, which a Problem points to.
struct NodeTypes {
  std::vector<ValueType> in, out;
  NodeTypes(const Graph& graph, const Node& node) {
    for (const ValueId value : node.in) in.push_back(graph.type(value));
    for (const ValueId value : node.out) out.push_back(graph.type(value));
  }
};

const Packing* packing_of(const Kernel& kernel, const Problem& problem, size_t operand) {
  return kernel.packing == nullptr ? nullptr : kernel.packing(problem, static_cast<int>(operand));
}

bool is_weight(const Graph& graph, ValueId value) { return graph.value(value).kind == ValueKind::kWeight; }

// True if `kernel` reads every weight operand of the node in the layout that `want` gives for it.
template <class Want>
bool packings_agree(const Graph& graph, const Node& node, const Kernel& kernel, const Problem& problem, Want want) {
  for (size_t i = 0; i < node.in.size(); ++i)
    if (is_weight(graph, node.in[i]) && packing_of(kernel, problem, i) != want(i)) return false;
  return true;
}

Error no_kernel(const Node& node, const NodeTypes& types, const DeviceInfo& device) {
  std::string inputs;
  for (const ValueType& type : types.in) inputs += fmt::format("{}{}", inputs.empty() ? "" : ", ", to_string(type));
  std::string outputs;
  for (const ValueType& type : types.out) outputs += fmt::format("{}{}", outputs.empty() ? "" : ", ", to_string(type));
  return error(Code::kUnsupported,
               fmt::format("no kernel on {} for {} ({}) on {} to {}{}", device.name, node.name, op_name(node.op),
                           inputs, outputs, device.id.kind == DeviceKind::kCpu ? "" : "; use --device cpu"));
}

// The kernel whose packings the node's weights get: the fastest for the smallest bucket whose layout some kernel of the
// largest bucket reads too.
Result<const Kernel*> kernel_for_packing(const Graph& graph, const Node& node, const NodeTypes& types,
                                         const KernelRegistry& kernels, const DeviceInfo& device,
                                         const SymbolValues& largest) {
  SymbolValues one;
  one.value.fill(1);
  const Problem small{&node.op, types.in, types.out, one, &device};
  const Problem large{&node.op, types.in, types.out, largest, &device};
  const auto large_candidates = kernels.candidates(large);
  for (const Kernel* kernel : kernels.candidates(small))
    for (const Kernel* other : large_candidates)
      if (packings_agree(graph, node, *other, large, [&](size_t i) { return packing_of(*kernel, small, i); }))
        return kernel;
  return no_kernel(node, types, device);
}

// Where each value of a plan lives: its own storage, or columns of another value's.
struct Place {
  ValueId root = kNoValue;
  int64_t column = 0;
};

std::vector<Place> places(const Graph& graph) {
  std::vector<Place> places(graph.value_count());
  for (size_t i = 0; i < places.size(); ++i) places[i].root = static_cast<ValueId>(i);
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (const auto* slice = std::get_if<Slice>(&node.op)) {
      const Place parent = places[static_cast<size_t>(node.in[0])];
      places[static_cast<size_t>(node.out[0])] = {parent.root, parent.column + slice->begin};
    }
  }
  return places;
}

struct Interval {
  ValueId value;
  size_t bytes;
  int first, last;  // steps; both inclusive
  size_t offset = 0;
};

// Offsets by decreasing size, each at the lowest place that no value alive at the same time holds.
size_t assign_offsets(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.value < b.value;
  });
  size_t total = 0;
  std::vector<const Interval*> placed;  // by offset
  for (Interval& interval : intervals) {
    size_t offset = 0;
    for (const Interval* other : placed) {
      if (other->last < interval.first || other->first > interval.last) continue;
      if (other->offset >= offset + interval.bytes) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    interval.offset = offset;
    total = std::max(total, offset + interval.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [](size_t o, const Interval* i) { return o < i->offset; }),
                  &interval);
  }
  return total;
}

// Which steps run in one launch: their kernels' chains decide, by what is largest.
void group_steps(const Graph& graph, const DeviceInfo& device, Plan& plan) {
  std::vector<TensorView> views;
  size_t count = 0;
  for (const Step& step : plan.steps) count += step.in.size() + step.out.size();
  views.reserve(count);  // launches keep spans into it
  std::vector<Launch> launches;
  std::vector<const Kernel*> kernels;
  for (const Step& step : plan.steps) {
    const size_t first = views.size();
    for (const Operand& operand : step.in) views.push_back(view_of(operand, plan.bucket, nullptr, device.id));
    for (const Operand& operand : step.out) views.push_back(view_of(operand, plan.bucket, nullptr, device.id));
    Launch launch;
    launch.op = &graph.node(step.node).op;
    launch.in = std::span(views).subspan(first, step.in.size());
    launch.out = std::span(views).subspan(first + step.in.size());
    launch.tactic = &step.tactic;
    launches.push_back(launch);
    kernels.push_back(step.kernel);
  }
  for (size_t i = 0; i < plan.steps.size();) {
    StepGroup group{i, 1, nullptr};
    const ChainKernel* chain = kernels[i]->chain;
    size_t most = 1;
    while (chain != nullptr && i + most < kernels.size() && kernels[i + most]->chain == chain) ++most;
    if (most > 1) {
      const size_t takes =
          chain->takes(std::span(launches).subspan(i, most), std::span(kernels).subspan(i, most), device);
      BOLIDE_CHECK(takes <= most, "{} takes {} of {} launches", chain->name, takes, most);
      if (takes > 1) group.count = takes, group.chain = chain;
    }
    plan.groups.push_back(group);
    i += group.count;
  }
}

}  // namespace

int64_t bucket_of(int64_t size, int64_t limit) {
  return std::min(limit, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(size, 1)))));
}

Result<std::vector<WeightStore::Use>> choose_packings(const Graph& graph, const KernelRegistry& kernels,
                                                      const DeviceInfo& device, const SymbolValues& largest) {
  std::vector<WeightStore::Use> uses;
  SymbolValues one;
  one.value.fill(1);
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (std::holds_alternative<Slice>(node.op)) continue;
    const NodeTypes types(graph, node);
    BOLIDE_TRY(const Kernel* kernel, kernel_for_packing(graph, node, types, kernels, device, largest));
    const Problem problem{&node.op, types.in, types.out, one, &device};
    for (size_t i = 0; i < node.in.size(); ++i)
      if (is_weight(graph, node.in[i])) uses.emplace_back(node.in[i], packing_of(*kernel, problem, i));
  }
  return uses;
}

Result<Plan> make_plan(const Graph& graph, const WeightStore& weights, const KernelRegistry& kernels,
                       const DeviceInfo& device, const SymbolValues& bucket, const TimingCache* timings) {
  Plan plan;
  plan.bucket = bucket;
  const std::vector<Place> place = places(graph);
  const size_t alignment = alignment_of(device);

  // Lifetimes, by root value.
  std::vector<int> first(graph.value_count(), -1), last(graph.value_count(), -1);
  int step_count = 0;
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (std::holds_alternative<Slice>(node.op)) continue;
    for (const ValueId value : node.in) last[static_cast<size_t>(place[static_cast<size_t>(value)].root)] = step_count;
    for (const ValueId value : node.out)
      first[static_cast<size_t>(value)] = last[static_cast<size_t>(value)] = step_count;
    ++step_count;
  }
  for (const Output& output : graph.outputs())
    last[static_cast<size_t>(place[static_cast<size_t>(output.value)].root)] = step_count;

  std::vector<Interval> intervals;
  for (size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.kind != ValueKind::kNode || first[i] < 0 || value.type.dtype == DType::kNone) continue;
    intervals.push_back({static_cast<ValueId>(i), round_up(value.type.bytes(bucket), alignment), first[i], last[i]});
  }
  uint64_t sum = 0;  // no offset is beyond it
  for (const Interval& interval : intervals)
    if (add_overflows(sum, interval.bytes, &sum) || sum > kActivationBytesMax)
      return error(Code::kOutOfMemory, "the activations of a step are too large; ask for fewer tokens a step");
  plan.values_bytes = assign_offsets(intervals);
  std::vector<size_t> offsets(graph.value_count());
  for (const Interval& interval : intervals) offsets[static_cast<size_t>(interval.value)] = interval.offset;

  const auto operand = [&](ValueId id) {
    const Value& value = graph.value(id);
    const Place where = place[static_cast<size_t>(id)];
    Operand made;
    made.type = value.type;
    made.value = id;
    if (value.kind == ValueKind::kInput) {
      made.kind = Operand::Kind::kInput;
    } else if (value.kind == ValueKind::kNode && value.type.dtype != DType::kNone) {
      made.kind = Operand::Kind::kArena;
      made.offset = offsets[static_cast<size_t>(where.root)];
      made.column = where.column;
      made.row_stride = graph.type(where.root).last().factor;
    }
    return made;
  };

  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (std::holds_alternative<Slice>(node.op)) continue;
    const NodeTypes types(graph, node);
    const Problem problem{&node.op, types.in, types.out, bucket, &device};
    Step step;
    step.node = id;
    const auto packed = [&](const Kernel& kernel) {
      for (size_t i = 0; i < node.in.size(); ++i)
        if (is_weight(graph, node.in[i]) && !weights.contains(node.in[i], packing_of(kernel, problem, i))) return false;
      return true;
    };
    for (const Kernel* kernel : kernels.candidates(problem))
      if (packed(*kernel)) {
        step.kernel = kernel;
        break;
      }
    if (step.kernel == nullptr) return no_kernel(node, types, device);
    if (timings != nullptr && step.kernel->tuning_key != nullptr)
      if (const auto* measured = timings->find(step.kernel->tuning_key(problem))) step.tactic = measured->tactic;
    for (size_t i = 0; i < node.in.size(); ++i) {
      Operand in = operand(node.in[i]);
      if (is_weight(graph, node.in[i])) {
        in.kind = Operand::Kind::kWeight;
        in.packing = packing_of(*step.kernel, problem, i);
        in.weight = weights.find(node.in[i], in.packing).view;
      }
      step.in.push_back(std::move(in));
    }
    for (const ValueId value : node.out) step.out.push_back(operand(value));
    if (step.kernel->workspace != nullptr)
      plan.workspace_bytes =
          std::max<size_t>(plan.workspace_bytes, round_up(step.kernel->workspace(problem), alignment));
    plan.steps.push_back(std::move(step));
  }
  for (const Output& output : graph.outputs()) plan.outputs[output.name] = operand(output.value);
  group_steps(graph, device, plan);
  return plan;
}

TensorView view_of(const Operand& operand, const SymbolValues& sizes, std::byte* arena, DeviceId device) {
  if (operand.kind == Operand::Kind::kWeight) return operand.weight;
  if (operand.kind == Operand::Kind::kNone) return {};
  TensorView view = make_view(nullptr, operand.type.dtype, operand.type.at(sizes), operand.type.quant);
  view.device = device;
  if (operand.kind == Operand::Kind::kArena) {
    view.row_stride = operand.row_stride;
    if (arena != nullptr)
      view.data = arena + operand.offset + static_cast<size_t>(operand.column) * (bits_of(view.dtype) / 8);
  }
  return view;
}

Result<PlanSet> PlanSet::make(Graph graph, WeightStore weights, const KernelRegistry& kernels, const DeviceInfo& device,
                              Limits limits, std::shared_ptr<const TimingCache> timings) {
  PlanSet set;
  set.timings_ = std::move(timings);
  set.graph_ = std::make_unique<Graph>(std::move(graph));
  set.device_ = std::make_unique<DeviceInfo>(device);
  set.kernels_ = &kernels;
  set.limits_ = limits;
  set.weights_ = std::move(weights);
  return set;
}

Result<const Plan*> PlanSet::select(const SymbolValues& sizes) {
  std::array<int64_t, kSymbols> key{};
  for (size_t i = 0; i < kSymbols; ++i) {
    if (sizes.value[i] > limits_.sizes.value[i])
      return error(Code::kInvalid,
                   fmt::format("{} = {} is beyond the {} that was planned for", to_string(static_cast<Symbol>(i)),
                               sizes.value[i], limits_.sizes.value[i]));
    key[i] = bucket_of(sizes.value[i], limits_.sizes.value[i]);
  }
  auto& plan = plans_[key];
  if (plan == nullptr) {
    BOLIDE_TRY(Plan made, make_plan(*graph_, weights_, *kernels_, *device_, SymbolValues{key}, timings_.get()));
    log::debug("plan made", {{"tokens", made.bucket[Symbol::kTokens]},
                             {"sequences", made.bucket[Symbol::kSequences]},
                             {"rows", made.bucket[Symbol::kRows]},
                             {"steps", made.steps.size()},
                             {"arena_bytes", made.arena_bytes()}});
    plan = std::make_unique<Plan>(std::move(made));
  }
  return plan.get();
}

}  // namespace bolide
