// FakeRunner: a ModelRunner without a model, to test what is above it. Its cache remembers which prefix each slot
// holds, and the next token is a hash of all tokens before it, so that an answer shows whether every token that it
// depends on was where it should be, rotated as the sequence's length wants it (longrope).
#pragma once

#include <algorithm>
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
    wanted_.emplace_back();
    for (const StepItem& item : batch.items)
      wanted_.back().push_back(item.draws ? item.answer->request->top_logprobs : 0);
    scored_.emplace_back(batch.items.size());
    for (const BlockCopy copy : batch.copies)
      for (int32_t i = 0; i < limits_.block_tokens; ++i) slot(copy.to, i) = slot(copy.from, i);
    std::vector<int32_t> drawn;
    int32_t rows = 0;
    for (size_t i = 0; i < batch.items.size(); ++i) {
      drawn.push_back(run(batch.items[i], scored_.back()[i]));
      rows += batch.items[i].first + batch.items[i].tokens - batch.items[i].row_first;
    }
    BOLIDE_CHECK(rows <= std::max(limits_.rows_max, limits_.sequences_max), "{} rows in a step", rows);
    last_ = drawn;
    underway_.push_back(std::move(drawn));
    return {};
  }
  Result<StepResult> wait() override {
    ids_ = std::move(underway_.front());
    underway_.pop_front();
    logprobs_.assign(ids_.size(), -1.5f);
    tops_.assign(ids_.size(), {});
    bool any = false;
    for (size_t i = 0; i < ids_.size(); ++i)
      for (int32_t n = 0; n < wanted_.front()[i]; ++n, any = true)
        tops_[i].push_back({(ids_[i] + n) % kVocab, -1.5f - static_cast<float>(n)});
    wanted_.pop_front();
    scores_ = std::move(scored_.front());
    scored_.pop_front();
    return StepResult{ids_, logprobs_, any ? std::span(tops_) : std::span<std::vector<TokenLogprob>>(), scores_};
  }
  void forget(AnswerState&) override { ++forgotten; }

  // The answer that the request gets alone.
  static std::vector<int32_t> answer(const SchedulerOptions& limits, const Request& request, int32_t choice) {
    std::vector<int32_t> all = request.prompt, tokens;
    while (static_cast<int32_t>(tokens.size()) < request.tokens_max &&
           static_cast<int32_t>(all.size()) < limits.context) {
      const bool long_rope = is_long(limits, static_cast<int32_t>(all.size()));
      uint64_t prefix = 0;
      for (const int32_t token : all) prefix = extend(prefix, token, long_rope);
      tokens.push_back(draw(prefix, static_cast<uint64_t>(choice), request.sampling.biases.get(),
                            static_cast<int32_t>(tokens.size())));
      if (std::find(request.stop_ids.begin(), request.stop_ids.end(), tokens.back()) != request.stop_ids.end()) break;
      all.push_back(tokens.back());
    }
    return tokens;
  }

  // The log-probabilities of the request's prompt, from its second token on.
  static std::vector<ScoredToken> prompt_scores(const SchedulerOptions& limits, const Request& request) {
    const bool long_rope = is_long(limits, static_cast<int32_t>(request.prompt.size()));
    std::vector<ScoredToken> scores;
    uint64_t prefix = 0;
    for (size_t i = 0; i + 1 < request.prompt.size(); ++i) {
      prefix = extend(prefix, request.prompt[i], long_rope);
      scores.push_back(score(prefix, request.prompt[i + 1], request.top_logprobs));
    }
    return scores;
  }

  std::function<Result<>(const StepBatch&)> on_submit;  // sees every step before it runs; its error is submit's
  // What is drawn for the token of an answer at this place of it, from 0 on, in place of what the cache says.
  std::function<int32_t(const Request&, int32_t)> script;
  int64_t forgotten = 0;

 private:
  // What a slot holds: a hash of the token there and of all tokens before it.
  static uint64_t extend(uint64_t prefix, int32_t token, bool long_rope) {
    uint64_t x = prefix * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(token) * 2 + (long_rope ? 1 : 0) + 1;
    x ^= x >> 29;
    return x * 0xbf58476d1ce4e5b9;
  }
  // With biases: the token whose score is largest, from 0 to 10 by hash and with its bias.
  static int32_t draw(uint64_t prefix, uint64_t choice, const LogitBiases* biases, int32_t drawn) {
    const int32_t count = biases == nullptr ? 0 : biases->count_at(drawn);
    if (count == 0) return static_cast<int32_t>((extend(prefix, 7, false) ^ choice) % kVocab);
    std::vector<float> scores(kVocab);
    for (int32_t id = 0; id < kVocab; ++id)
      scores[static_cast<size_t>(id)] =
          static_cast<float>((extend(prefix, id, false) ^ choice * 0x9e3779b97f4a7c15) % 10000) / 1000.f;
    for (int32_t i = 0; i < count; ++i)
      scores[static_cast<size_t>(biases->pairs[static_cast<size_t>(i)].id)] +=
          biases->pairs[static_cast<size_t>(i)].bias;
    return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  }
  static ScoredToken score(uint64_t prefix, int32_t token, int32_t top) {
    ScoredToken made{-static_cast<float>(extend(prefix, token, false) % 4000) / 100.f, {}};
    for (int32_t n = 0; n < top; ++n) made.top.push_back({(token + n) % kVocab, made.logprob - static_cast<float>(n)});
    return made;
  }
  static bool is_long(const SchedulerOptions& limits, int32_t length) {
    return limits.rope_switch > 0 && length > limits.rope_switch;
  }

  int32_t run(const StepItem& item, std::vector<ScoredToken>& scored) {
    const Sequence& s = item.answer->sequence;
    uint64_t prefix = item.first == 0 ? 0 : at(s, item.first - 1);
    for (int32_t position = item.first; position < item.first + item.tokens; ++position) {
      const bool chained = item.chained_item >= 0 && position == item.length - 1;
      BOLIDE_CHECK(!chained || s.sampling.repetition_penalty == 1, "a penalty without the history that it needs");
      const int32_t token =
          chained ? last_.at(static_cast<size_t>(item.chained_item)) : s.tokens.at(static_cast<size_t>(position));
      prefix = at(s, position) = extend(prefix, token, is_long(limits_, item.length));
      if (position >= item.row_first && position < item.row_first + item.scores)
        scored.push_back(
            score(prefix, s.tokens.at(static_cast<size_t>(position) + 1), item.answer->request->top_logprobs));
    }
    if (script) return script(*item.answer->request, item.length - s.prompt_count);
    return draw(prefix, s.request, s.sampling.biases.get(), item.length - s.prompt_count);
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
  std::deque<std::vector<int32_t>> wanted_;  // Request::top_logprobs of each item of the steps under way
  std::vector<std::vector<TokenLogprob>> tops_;
  std::deque<std::vector<std::vector<ScoredToken>>> scored_;  // by item, of the steps under way
  std::vector<std::vector<ScoredToken>> scores_;
};

}  // namespace bolide
