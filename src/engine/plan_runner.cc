#include "engine/plan_runner.h"

namespace bolide {

SchedulerOptions PlanRunner::limits() const {
  const RunnerOptions& options = runner_->options();
  SchedulerOptions limits;
  limits.blocks = runner_->block_count();
  limits.block_tokens = options.block_tokens;
  limits.context = options.context;
  limits.sequences_max = options.sequences;
  limits.tokens_per_step = options.tokens_per_step;
  limits.rope_switch = runner_->facts().rope_switch;
  limits.rope_dynamic = runner_->facts().rope_dynamic;
  return limits;
}

Result<> PlanRunner::submit(const StepBatch& batch) {
  BOLIDE_TRY(const Runner::Ticket ticket, runner_->submit(batch));
  underway_.push_back({ticket, batch.items.size()});
  return {};
}

Result<StepResult> PlanRunner::wait() {
  const Underway oldest = underway_.front();
  underway_.erase(underway_.begin());
  BOLIDE_TRY(runner_->wait_for_rows(oldest.ticket));
  return StepResult{{runner_->next(), oldest.items}, {runner_->logprobs(), oldest.items}, runner_->tops()};
}

}  // namespace bolide
