// PlanRunner: the ModelRunner that runs plans, on whatever device they are for.
#pragma once

#include <memory>

#include "engine/model_runner.h"
#include "engine/runner.h"

namespace bolide {

class PlanRunner final : public ModelRunner {
 public:
  explicit PlanRunner(std::unique_ptr<Runner> runner) : runner_(std::move(runner)) {}

  SchedulerOptions limits() const override;
  size_t steps_ahead() const override { return runner_->options().deferred ? 2 : 1; }
  Result<> submit(const StepBatch& batch) override;
  Result<StepResult> wait() override;
  void forget(AnswerState& answer) override { runner_->forget(answer.sequence); }

  Runner& runner() { return *runner_; }

 private:
  struct ItemRows {
    int32_t count, scores;
  };
  struct Underway {
    Runner::Ticket ticket;
    std::vector<ItemRows> items;
  };
  void collect(const Underway& step);

  std::unique_ptr<Runner> runner_;
  std::vector<Underway> underway_;  // at most two
  // Of the step waited for last, one per item.
  std::vector<int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<std::vector<TokenLogprob>> tops_;
  std::vector<std::vector<ScoredToken>> scored_;
};

}  // namespace bolide
