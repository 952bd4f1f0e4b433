// FakeRunner: a ModelRunner without a model, to test what is above it. Its cache remembers which prefix each slot
// holds, and the next token is a hash of all tokens before it, so that an answer shows whether every token that it
// depends on was where it should be.
#pragma once

#include <deque>
#include <functional>

#include "engine/model_runner.h"

namespace bolide {

class FakeRunner final : public ModelRunner {
 public:
  static constexpr int32_t kVocab = 1000;

  explicit FakeRunner(const SchedulerOptions& limits, size_t steps_ahead = 1)
      : limits_(limits),
        steps_ahead_(steps_ahead),
        slots_(static_cast<size_t>(limits.blocks) * static_cast<size_t>(limits.block_tokens)) {}

  SchedulerOptions limits() const override { return limits_; }
  size_t steps_ahead() const override { return steps_ahead_; }

  Result<> submit(const StepBatch& batch) override {
    if (on_submit) BOLIDE_TRY(on_submit(batch));
    for (const BlockCopy copy : batch.copies)
      for (int32_t i = 0; i < limits_.block_tokens; ++i) slot(copy.to, i) = slot(copy.from, i);
    std::vector<int32_t> drawn;
    for (const StepItem& item : batch.items) drawn.push_back(run(item));
    last_ = drawn;
    underway_.push_back(std::move(drawn));
    return {};
  }
  Result<StepResult> wait() override {
    ids_ = std::move(underway_.front());
    underway_.pop_front();
    logprobs_.assign(ids_.size(), -1.5f);
    return StepResult{ids_, logprobs_};
  }
  void forget(AnswerState&) override { ++forgotten; }

  // The answer that the request gets alone.
  static std::vector<int32_t> answer(const Request& request, int32_t choice, int32_t context) {
    uint64_t prefix = 0;
    for (const int32_t token : request.prompt) prefix = extend(prefix, token);
    std::vector<int32_t> tokens;
    while (static_cast<int32_t>(tokens.size()) < request.tokens_max &&
           static_cast<int32_t>(request.prompt.size() + tokens.size()) < context) {
      tokens.push_back(draw(prefix, static_cast<uint64_t>(choice)));
      if (std::find(request.stop_ids.begin(), request.stop_ids.end(), tokens.back()) != request.stop_ids.end()) break;
      prefix = extend(prefix, tokens.back());
    }
    return tokens;
  }

  std::function<Result<>(const StepBatch&)> on_submit;  // sees every step before it runs; its error is submit's
  int64_t forgotten = 0;

 private:
  // What a slot holds: a hash of the token there and of all tokens before it.
  static uint64_t extend(uint64_t prefix, int32_t token) {
    uint64_t x = prefix * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(token) + 1;
    x ^= x >> 29;
    return x * 0xbf58476d1ce4e5b9;
  }
  static int32_t draw(uint64_t prefix, uint64_t choice) {
    return static_cast<int32_t>((extend(prefix, 7) ^ choice) % kVocab);
  }

  int32_t run(const StepItem& item) {
    const Sequence& s = item.answer->sequence;
    uint64_t prefix = item.first == 0 ? 0 : at(s, item.first - 1);
    for (int32_t position = item.first; position < item.first + item.tokens; ++position) {
      const bool chained = item.chained_item >= 0 && position == item.length - 1;
      const int32_t token =
          chained ? last_.at(static_cast<size_t>(item.chained_item)) : s.tokens.at(static_cast<size_t>(position));
      prefix = at(s, position) = extend(prefix, token);
    }
    return draw(prefix, s.request);
  }
  uint64_t& at(const Sequence& s, int32_t position) {
    return slot(s.blocks.at(static_cast<size_t>(position / limits_.block_tokens)), position % limits_.block_tokens);
  }
  uint64_t& slot(BlockId block, int32_t offset) {
    return slots_.at(static_cast<size_t>(block * limits_.block_tokens + offset));
  }

  SchedulerOptions limits_;
  size_t steps_ahead_;
  std::vector<uint64_t> slots_;
  std::deque<std::vector<int32_t>> underway_;
  std::vector<int32_t> last_, ids_;
  std::vector<float> logprobs_;
};

}  // namespace bolide
