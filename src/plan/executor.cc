#include "plan/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/log.h"

namespace bolide {
namespace {

struct InputField {
  std::string_view name;
  const int32_t* BatchInputs::* field;
};
constexpr std::array kInputs = {
    InputField{"ids", &BatchInputs::ids},
    InputField{"positions", &BatchInputs::positions},
    InputField{"rows", &BatchInputs::rows},
};

// The node, and the tensors of the checkpoint that it reads.
std::string describe(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::string tensors;
  for (const ValueId value : node.in)
    if (value != kNoValue && !graph.value(value).parts.empty())
      tensors += fmt::format("{}{}", tensors.empty() ? "" : ", ", to_string(std::span(graph.value(value).parts)));
  return tensors.empty() ? node.name : fmt::format("{} (tensor {})", node.name, tensors);
}

// What a captured launch has inside of a batch.
bool same_addresses(const BatchInputs& a, const BatchInputs& b) {
  return a.ids == b.ids && a.positions == b.positions && a.rows == b.rows && a.cu_tokens == b.cu_tokens &&
         a.context == b.context && a.rope_length == b.rope_length && a.block_table == b.block_table &&
         a.slots == b.slots && a.counts == b.counts && a.block_table_stride == b.block_table_stride &&
         a.sizes == b.sizes && a.kv.layers.data() == b.kv.layers.data() && a.sampling.data() == b.sampling.data() &&
         a.sampling.size() == b.sampling.size();
}

}  // namespace

Result<> Executor::reserve(size_t arena_bytes, Stream& stream) {
  if (arena_.size() >= arena_bytes) return {};
  if (arena_.size() > 0) BOLIDE_TRY(stream.synchronize());
  replayed_.clear();
  loose_ = nullptr;
  last_ = nullptr;
  arena_ = {};
  // A CPU device's memory is for what is touched little by little; activations are read from end to end.
  const bool host = device_ == nullptr || device_->info().id.kind == DeviceKind::kCpu;
  auto arena = host ? Buffer::host(arena_bytes) : device_->allocate(arena_bytes, Memory::kDevice);
  BOLIDE_TRY(arena_, std::move(arena).context("activations"));
  return {};
}

void Executor::bind(Bound& bound, const Plan& plan, const Graph& graph, const SymbolValues& sizes) const {
  bound.plan = nullptr;
  bound.views.clear();
  bound.inputs.clear();
  bound.launches.clear();
  bound.kernels.clear();
  size_t count = 0;
  for (const Step& step : plan.steps) count += step.in.size() + step.out.size();
  bound.views.reserve(count);  // launches keep spans into it
  const MutableBytes workspace = arena_.bytes().subspan(plan.values_bytes, plan.workspace_bytes);
  for (const Step& step : plan.steps) {
    const size_t first = bound.views.size();
    for (const Operand& operand : step.in) {
      if (operand.kind == Operand::Kind::kInput) {
        const std::string& name = graph.value(operand.value).name;
        const size_t known = bound.inputs.size();
        for (const InputField& input : kInputs)
          if (input.name == name) bound.inputs.push_back({bound.views.size(), input.field});
        BOLIDE_CHECK(bound.inputs.size() > known, "the batch has nothing for the graph's input {}", name);
      }
      bound.views.push_back(view_of(operand, sizes, arena_.data(), arena_.device()));
    }
    for (const Operand& operand : step.out)
      bound.views.push_back(view_of(operand, sizes, arena_.data(), arena_.device()));
    Launch launch;
    launch.op = &graph.node(step.node).op;
    launch.in = std::span(bound.views).subspan(first, step.in.size());
    launch.out = std::span(bound.views).subspan(first + step.in.size(), step.out.size());
    launch.workspace = workspace;
    launch.tactic = &step.tactic;
    launch.batch = &bound.batch;
    bound.launches.push_back(launch);
    bound.kernels.push_back(step.kernel);
  }
  bound.plan = &plan;
  bound.graph = &graph;
  bound.sizes = sizes;
}

void Executor::Bound::set_batch(const BatchInputs& inputs_of_step) {
  batch = inputs_of_step;
  for (const InputView& input : inputs)
    views[input.index].data = reinterpret_cast<std::byte*>(const_cast<int32_t*>(batch.*input.field));
}

Result<> Executor::Bound::launch(const StepGroup& group, Stream& stream) const {
  auto done = group.chain == nullptr
                  ? kernels[group.first]->launch(launches[group.first], stream)
                  : group.chain->launch(std::span(launches).subspan(group.first, group.count),
                                        std::span(kernels).subspan(group.first, group.count), stream);
  if (done) [[likely]]
    return done;
  return std::move(done).error().context(describe(*graph, plan->steps[group.first].node));
}

Result<> Executor::Bound::launch_all(Stream& stream, const std::atomic<bool>* cancel) const {
  for (const StepGroup& group : plan->groups) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return error(Code::kCancelled, "cancelled");
    BOLIDE_TRY(launch(group, stream));
  }
  return {};
}

Result<> Executor::make_events(size_t count) {
  while (events_.size() < count) {
    BOLIDE_TRY(auto event, device_->make_event());
    events_.push_back(std::move(event));
  }
  return {};
}

Result<> Executor::observe(const Bound& bound, Stream& stream, const StepObserver& observer) {
  const bool sees_values = observer.sees() == StepObserver::Sees::kValues;
  std::vector<StepGroup> groups = bound.plan->groups;
  if (sees_values) {
    groups.clear();
    for (size_t i = 0; i < bound.launches.size(); ++i) groups.push_back({i, 1, nullptr});
  }
  const auto seen = [&](const StepGroup& group, double seconds) {
    for (size_t i = 0; i < group.count; ++i)
      observer(*bound.plan, group.first + i, bound.launches[group.first + i], i == 0 ? seconds : 0);
  };
  if (observer.sees() == StepObserver::Sees::kLaunches) return observe_launches(bound, stream, observer);
  if (device_ == nullptr) {
    if (observer.sees() == StepObserver::Sees::kWhole) {
      const auto start = std::chrono::steady_clock::now();
      BOLIDE_TRY(bound.launch_all(stream));
      observer(*bound.plan, 0, bound.launches[0],
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      return {};
    }
    for (const StepGroup& group : groups) {
      const auto start = std::chrono::steady_clock::now();
      BOLIDE_TRY(bound.launch(group, stream));
      seen(group, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return {};
  }
  if (observer.sees() == StepObserver::Sees::kWhole) return observe_whole(bound, stream, observer);
  BOLIDE_TRY(make_events(groups.size() + 1));
  BOLIDE_TRY(stream.record(*events_[0]));
  for (size_t i = 0; i < groups.size(); ++i) {
    BOLIDE_TRY(bound.launch(groups[i], stream));
    BOLIDE_TRY(stream.record(*events_[i + 1]));
    if (!sees_values) continue;
    BOLIDE_TRY(stream.synchronize().context(describe(*bound.graph, bound.plan->steps[i].node)));
    BOLIDE_TRY(const double seconds, events_[i + 1]->seconds_since(*events_[i]));
    seen(groups[i], seconds);
    BOLIDE_TRY(stream.record(*events_[i + 1]));
  }
  if (sees_values) return {};
  BOLIDE_TRY(stream.synchronize());
  for (size_t i = 0; i < groups.size(); ++i) {
    BOLIDE_TRY(const double seconds, events_[i + 1]->seconds_since(*events_[i]));
    seen(groups[i], seconds);
  }
  return {};
}

Result<> Executor::observe_launches(const Bound& bound, Stream& stream, const StepObserver& observer) {
  for (const StepGroup& group : bound.plan->groups) {
    BOLIDE_TRY(bound.launch(group, stream));
    observer(*bound.plan, group.first, bound.launches[group.first], 0);
  }
  return stream.synchronize();
}

Result<> Executor::observe_whole(const Bound& bound, Stream& stream, const StepObserver& observer) {
  BOLIDE_TRY(make_events(2));
  for (const auto& event : {events_[0].get(), events_[1].get()}) {
    BOLIDE_TRY(bound.captured != nullptr ? bound.captured->launch(stream) : bound.launch_all(stream));
    BOLIDE_TRY(stream.record(*event));
  }
  BOLIDE_TRY(stream.synchronize());
  BOLIDE_TRY(const double seconds, events_[1]->seconds_since(*events_[0]));
  observer(*bound.plan, 0, bound.launches[0], seconds);
  return {};
}

Result<> Executor::run(const Plan& plan, const Graph& graph, const BatchInputs& batch, Stream& stream,
                       const StepObserver* observer, const std::atomic<bool>* cancel) {
  BOLIDE_TRY(reserve(plan.arena_bytes(), stream));
  if (loose_ == nullptr) loose_ = std::make_unique<Bound>();
  if (loose_->plan != &plan || loose_->sizes != batch.sizes) bind(*loose_, plan, graph, batch.sizes);
  loose_->set_batch(batch);
  last_ = loose_.get();
  return observer == nullptr ? loose_->launch_all(stream, cancel) : observe(*loose_, stream, *observer);
}

Result<> Executor::replay(const Plan& plan, const Graph& graph, const BatchInputs& batch, Stream& stream,
                          const StepObserver* observer) {
  BOLIDE_TRY(reserve(plan.arena_bytes(), stream));
  std::unique_ptr<Bound>& slot = replayed_[&plan];
  if (slot == nullptr) slot = std::make_unique<Bound>();
  Bound& bound = *slot;
  if (bound.plan != &plan || !same_addresses(bound.batch, batch)) {
    bound.captured = nullptr;
    bound.runs = 0;
    bind(bound, plan, graph, batch.sizes);
    bound.set_batch(batch);
  }
  last_ = &bound;
  if (bound.captured != nullptr)
    return observer != nullptr ? observe_whole(bound, stream, *observer) : bound.captured->launch(stream);
  // What libraries set up on first use is not allowed while capturing: the first time is not captured.
  if (bound.runs++ == 0 || !bound.capturable) return bound.launch_all(stream);
  auto captured = stream.capture([&bound](Stream& s) { return bound.launch_all(s); });
  if (!captured) {
    if (captured.error().code == Code::kUnavailable) return std::move(captured).error();
    log::warning("a plan cannot be captured; its steps are launched one by one",
                 {{"tokens", bound.sizes[Symbol::kTokens]}, {"why", std::string_view(captured.error().text)}});
    bound.capturable = false;
    return bound.launch_all(stream);
  }
  bound.captured = *std::move(captured);
  return bound.captured->launch(stream);
}

TensorView Executor::output(std::string_view name) const {
  BOLIDE_CHECK(last_ != nullptr, "output before any run");
  const auto it = last_->plan->outputs.find(name);
  BOLIDE_CHECK(it != last_->plan->outputs.end(), "the graph has no output {}", name);
  return view_of(it->second, last_->sizes, arena_.data(), arena_.device());
}

int Executor::captured_count() const {
  return static_cast<int>(std::count_if(replayed_.begin(), replayed_.end(),
                                        [](const auto& entry) { return entry.second->captured != nullptr; }));
}

}  // namespace bolide
