// TimelineBook: which steps computed what of a request, and when: what its user looks at to see why it took so long.
//
// Thread rules: the engine's thread writes, any thread reads. Times are microseconds of the steady clock.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"

namespace bolide {

struct TimelineStep {
  int64_t begin_us = 0, end_us = 0;
  int32_t choice = 0;
  int32_t first = 0, tokens = 0;                // positions [first, first + tokens) of the answer's sequence
  int32_t steps = 1;                            // that this stands for
  int32_t batch_tokens = 0, batch_answers = 0;  // of all requests in the step
  bool prompt = false, draws = false;           // it computed positions of the prompt; a token was drawn
};

struct Timeline {
  int64_t accepted_us = 0;  // by the engine's thread
  int64_t over_us = 0;      // 0: it is not
  int32_t prompt_tokens = 0;
  std::vector<TimelineStep> steps;
};

class TimelineBook {
 public:
  // The last `kept` requests that are over can be looked up. Of each the first `steps_max` steps are told apart; those
  // after them count for the last.
  explicit TimelineBook(size_t kept = 256, size_t steps_max = 1024) : kept_(kept), steps_max_(steps_max) {}

  void accepted(const Request& request, int64_t now_us);
  void step(const StepBatch& batch, int64_t begin_us, int64_t end_us);
  void over(RequestId request, int64_t now_us);

  // None: it never was, or is over for long.
  std::optional<Timeline> find(RequestId request) const;

 private:
  const size_t kept_, steps_max_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<RequestId, Timeline> timelines_;
  std::deque<RequestId> over_;
};

}  // namespace bolide
