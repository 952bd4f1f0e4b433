#include "plan/executor.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

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

}  // namespace

TensorView Executor::view(const Operand& operand, const SymbolValues& sizes) const {
  if (operand.kind == Operand::Kind::kWeight) return operand.weight;
  if (operand.kind == Operand::Kind::kNone) return {};
  TensorView view = make_view(nullptr, operand.type.dtype, operand.type.at(sizes), operand.type.quant);
  if (operand.kind == Operand::Kind::kArena) {
    view.row_stride = operand.row_stride;
    view.data = arena_.data() + operand.offset + static_cast<size_t>(operand.column) * (bits_of(view.dtype) / 8);
  }
  return view;
}

Result<> Executor::bind(const Plan& plan, const Graph& graph, const SymbolValues& sizes) {
  bound_ = nullptr;
  if (arena_.size() < plan.arena_bytes()) {
    arena_ = {};
    auto arena = Buffer::host(plan.arena_bytes()).context("activations");
    BOLIDE_TRY(arena_, std::move(arena));
  }
  views_.clear();
  inputs_.clear();
  launches_.clear();
  size_t count = 0;
  for (const Step& step : plan.steps) count += step.in.size() + step.out.size();
  views_.reserve(count);  // launches_ keeps spans into it
  const MutableBytes workspace = arena_.bytes().subspan(plan.values_bytes, plan.workspace_bytes);
  for (const Step& step : plan.steps) {
    const size_t first = views_.size();
    for (const Operand& operand : step.in) {
      if (operand.kind == Operand::Kind::kInput) {
        const std::string& name = graph.value(operand.value).name;
        const size_t known = inputs_.size();
        for (const InputField& input : kInputs)
          if (input.name == name) inputs_.push_back({views_.size(), input.field});
        BOLIDE_CHECK(inputs_.size() > known, "the batch has nothing for the graph's input {}", name);
      }
      views_.push_back(view(operand, sizes));
    }
    for (const Operand& operand : step.out) views_.push_back(view(operand, sizes));
    Launch launch;
    launch.op = &graph.node(step.node).op;
    launch.in = std::span(views_).subspan(first, step.in.size());
    launch.out = std::span(views_).subspan(first + step.in.size(), step.out.size());
    launch.workspace = workspace;
    launch.tactic = &step.tactic;
    launches_.push_back(launch);
  }
  bound_ = &plan;
  sizes_ = sizes;
  return {};
}

Result<> Executor::run(const Plan& plan, const Graph& graph, const BatchInputs& batch, Stream& stream,
                       const StepObserver* observer) {
  if (bound_ != &plan || sizes_ != batch.sizes) BOLIDE_TRY(bind(plan, graph, batch.sizes));
  batch_ = batch;
  for (const InputView& input : inputs_)
    views_[input.index].data = reinterpret_cast<std::byte*>(const_cast<int32_t*>(batch.*input.field));
  for (Launch& launch : launches_) launch.batch = &batch_;  // here: an executor may have moved since it was bound
  if (observer == nullptr) {
    for (size_t i = 0; i < launches_.size(); ++i)
      if (auto done = plan.steps[i].kernel->launch(launches_[i], stream); !done)
        return std::move(done).error().context(describe(graph, plan.steps[i].node));
    return {};
  }
  for (size_t i = 0; i < launches_.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    auto done = plan.steps[i].kernel->launch(launches_[i], stream);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!done) return std::move(done).error().context(describe(graph, plan.steps[i].node));
    (*observer)(plan, i, launches_[i], seconds);
  }
  return {};
}

TensorView Executor::output(std::string_view name) const {
  BOLIDE_CHECK(bound_ != nullptr, "output before any run");
  const auto it = bound_->outputs.find(name);
  BOLIDE_CHECK(it != bound_->outputs.end(), "the graph has no output {}", name);
  return view(it->second, sizes_);
}

}  // namespace bolide
