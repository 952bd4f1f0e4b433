#include "plan/tune_plans.h"

#include <map>

namespace bolide {
namespace {

struct Choice {
  const Kernel* kernel;
  const Op* op;
  std::vector<ValueType> in, out;
  SymbolValues bucket;
};

}  // namespace

Result<> tune_plans(PlanSet& plans, Device& device, std::span<const SymbolValues> buckets, bool again,
                    TimingCache* timings, FunctionRef<void(const TuneProgress&)> progress) {
  std::map<std::string, Choice> choices;
  for (const SymbolValues& sizes : buckets) {
    BOLIDE_TRY(const Plan* plan, plans.select(sizes));
    for (const Step& step : plan->steps) {
      if (step.kernel->tuning_key == nullptr || step.kernel->tunable == nullptr) continue;
      Choice choice{step.kernel, &plans.graph().node(step.node).op, {}, {}, plan->bucket};
      for (const Operand& operand : step.in) choice.in.push_back(operand.type);
      for (const Operand& operand : step.out) choice.out.push_back(operand.type);
      const Problem problem{choice.op, choice.in, choice.out, choice.bucket, &plans.device()};
      const std::string key = step.kernel->tuning_key(problem);
      if (!key.empty() && (again || timings->find(key) == nullptr)) choices.emplace(key, std::move(choice));
    }
  }
  TuneProgress now{{}, 0, static_cast<int>(choices.size()), nullptr};
  for (const auto& [key, choice] : choices) {
    now.key = key;
    now.tuned = nullptr;
    progress(now);
    const Problem problem{choice.op, choice.in, choice.out, choice.bucket, &plans.device()};
    BOLIDE_TRY(const std::unique_ptr<Tunable> tunable, choice.kernel->tunable(problem, device));
    BOLIDE_TRY(const Tuned tuned, tune(*tunable));
    timings->put(key, {tuned.tactic, tuned.seconds * 1e6, tuned.untuned_seconds * 1e6});
    ++now.done;
    now.tuned = &tuned;
    progress(now);
  }
  return {};
}

}  // namespace bolide
