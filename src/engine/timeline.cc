#include "engine/timeline.h"

#include <algorithm>

namespace bolide {

void TimelineBook::accepted(const Request& request, int64_t now_us) {
  const std::lock_guard lock(mutex_);
  Timeline& timeline = timelines_[request.id];
  timeline.accepted_us = now_us;
  timeline.prompt_tokens = static_cast<int32_t>(request.prompt.size());
}

void TimelineBook::step(const StepBatch& batch, int64_t begin_us, int64_t end_us) {
  const std::lock_guard lock(mutex_);
  for (const StepItem& item : batch.items) {
    const auto it = timelines_.find(item.answer->request->id);
    if (it == timelines_.end()) continue;
    Timeline& timeline = it->second;
    if (timeline.steps.size() == steps_max_) {
      TimelineStep& last = timeline.steps.back();
      last.end_us = end_us;
      last.tokens += item.tokens;
      ++last.steps;
      last.batch_tokens = std::max(last.batch_tokens, batch.tokens);
      last.batch_answers = std::max(last.batch_answers, static_cast<int32_t>(batch.items.size()));
      last.draws |= item.draws;
      continue;
    }
    timeline.steps.push_back({.begin_us = begin_us,
                              .end_us = end_us,
                              .choice = item.answer->choice,
                              .first = item.first,
                              .tokens = item.tokens,
                              .batch_tokens = batch.tokens,
                              .batch_answers = static_cast<int32_t>(batch.items.size()),
                              .prompt = item.first < timeline.prompt_tokens,
                              .draws = item.draws});
  }
}

void TimelineBook::over(RequestId request, int64_t now_us) {
  const std::lock_guard lock(mutex_);
  const auto it = timelines_.find(request);
  if (it == timelines_.end() || it->second.over_us != 0) return;
  it->second.over_us = now_us;
  over_.push_back(request);
  if (over_.size() <= kept_) return;
  timelines_.erase(over_.front());
  over_.pop_front();
}

std::optional<Timeline> TimelineBook::find(RequestId request) const {
  const std::lock_guard lock(mutex_);
  const auto it = timelines_.find(request);
  if (it == timelines_.end()) return std::nullopt;
  return it->second;
}

}  // namespace bolide
