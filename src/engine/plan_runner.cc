#include "engine/plan_runner.h"

#include <iterator>

namespace bolide {

SchedulerOptions PlanRunner::limits() const {
  const RunnerOptions& options = runner_->options();
  SchedulerOptions limits;
  limits.blocks = runner_->block_count();
  limits.block_tokens = options.block_tokens;
  limits.context = options.context;
  limits.sequences_max = options.sequences;
  limits.tokens_per_step = options.tokens_per_step;
  limits.rows_max = static_cast<int32_t>(runner_->plans().limits().sizes[Symbol::kRows]);
  limits.rope_switch = runner_->facts().rope_switch;
  limits.rope_dynamic = runner_->facts().rope_dynamic;
  return limits;
}

Result<> PlanRunner::submit(const StepBatch& batch) {
  BOLIDE_TRY(const Runner::Ticket ticket, runner_->submit(batch));
  Underway step{ticket, {}};
  for (const StepItem& item : batch.items)
    step.items.push_back({item.first + item.tokens - item.row_first, item.scores});
  underway_.push_back(std::move(step));
  return {};
}

// An item's first rows are the prompt's, the last is what it draws from.
void PlanRunner::collect(const Underway& step) {
  ids_.clear();
  logprobs_.clear();
  tops_.clear();
  scored_.clear();
  const std::span<ScoredToken> tops = runner_->tops();
  size_t row = 0;
  for (const ItemRows& item : step.items) {
    const auto count = static_cast<size_t>(item.count), scores = static_cast<size_t>(item.scores);
    const size_t last = row + count - 1;
    ids_.push_back(runner_->next()[last]);
    logprobs_.push_back(runner_->logprobs()[last]);
    if (!tops.empty()) {
      const auto scored = tops.subspan(row, scores);
      scored_.emplace_back(std::move_iterator(scored.begin()), std::move_iterator(scored.end()));
      tops_.push_back(std::move(tops[last].top));
    }
    row += count;
  }
}

Result<StepResult> PlanRunner::wait() {
  const Underway oldest = std::move(underway_.front());
  underway_.erase(underway_.begin());
  BOLIDE_TRY(runner_->wait_for_rows(oldest.ticket));
  collect(oldest);
  return StepResult{ids_, logprobs_, tops_, scored_};
}

}  // namespace bolide
