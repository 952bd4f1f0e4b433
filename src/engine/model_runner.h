// ModelRunner: what the engine sees of a model on a device. Nothing above it knows which device that is.
//
// Thread rules: one thread, the engine's, after it was made.
#pragma once

#include <span>

#include "engine/scheduler.h"

namespace bolide {

struct StepResult {
  // One per item of the step; valid until the next wait. An id below 0: no token can be drawn.
  std::span<const int32_t> ids;
  std::span<const float> logprobs;
  std::span<std::vector<TokenLogprob>> tops;   // Request::top_logprobs; none if no item's request wants any
  std::span<std::vector<ScoredToken>> scored;  // StepItem::scores of them; none if no item wants any
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Everything but `prefix_cache` and `secret`.
  virtual SchedulerOptions limits() const = 0;
  // Steps that may be under way at once: 2 on devices whose work runs later, 1 where submit is the work.
  virtual size_t steps_ahead() const = 0;

  // Starts a step; what it needs of the answers is read before this returns. Errors leave the model unusable.
  virtual Result<> submit(const StepBatch& batch) = 0;
  // The results of the oldest step that was not waited for.
  virtual Result<StepResult> wait() = 0;
  // The answer is over: whatever is kept for it can go.
  virtual void forget(AnswerState& answer) = 0;
};

}  // namespace bolide
