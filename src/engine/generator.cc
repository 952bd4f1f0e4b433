#include "engine/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int32_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<int32_t>(end.first - a.begin());
}

bool contains(std::span<const int32_t> ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "";
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  // The stop string that is complete first, the longest of those: how the text was cut into pieces does not matter.
  size_t first = std::string::npos, first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = stop.empty() ? std::string::npos : held_.find(stop);
    if (at == std::string::npos) continue;
    if (at + stop.size() < first_end || (at + stop.size() == first_end && at < first))
      first = at, first_end = at + stop.size();
  }
  if (first != std::string::npos) {
    stopped_ = true;
    return std::exchange(held_, {}).substr(0, first);
  }
  size_t keep = 0;  // the longest end of held_ that begins a stop string
  for (const std::string& stop : stops_)
    for (size_t n = std::min(stop.size(), held_.size()); n > keep; --n)
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
  std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return ready;
}

std::string StopFilter::flush() { return stopped_ ? std::string() : std::exchange(held_, {}); }

Result<> prompt_fits(size_t prompt_tokens, int32_t context) {
  if (prompt_tokens == 0) return error(Code::kInvalid, "the prompt has no tokens");
  if (prompt_tokens < static_cast<size_t>(std::max(context, 0))) return {};
  return error(
      Code::kInvalid,
      fmt::format("the prompt has {} tokens, the context holds {} with the answer; shorten it or raise --context",
                  prompt_tokens, context));
}

Result<> Generator::prefill(const GenerateRequest& request, GenerateTimings* timings) {
  BOLIDE_TRY(prompt_fits(request.prompt.size(), runner_.options().context));
  const auto prompt_count = static_cast<int32_t>(request.prompt.size());
  // The last token is always computed: its logits are what the answer starts from.
  int32_t keep = std::min({common_prefix(sequence_.tokens, request.prompt), sequence_.computed, prompt_count - 1});
  // A cached answer never depends on what was asked before.
  if (!runner_.cache_fits(sequence_, prompt_count)) keep = 0;
  runner_.truncate(sequence_, keep);
  sequence_.tokens = request.prompt;
  sequence_.prompt_count = prompt_count;
  sequence_.sampling = request.sampling;
  sequence_.request = request.request;
  timings->prompt_tokens = prompt_count;
  while (sequence_.computed < prompt_count) {
    if (request.cancel != nullptr && request.cancel->load()) return error(Code::kCancelled, "cancelled");
    const Work work{&sequence_, std::min(prompt_count - sequence_.computed, runner_.options().tokens_per_step)};
    BOLIDE_TRY(runner_.step(std::span(&work, 1), nullptr, request.cancel));
    timings->computed_tokens = sequence_.computed - keep;
    if (request.on_prompt != nullptr) (*request.on_prompt)(sequence_.computed, prompt_count);
  }
  return {};
}

Result<> Generator::compute_rest(const std::atomic<bool>* cancel) {
  while (sequence_.computed < sequence_.size()) {
    const Work work{&sequence_, std::min(sequence_.size() - sequence_.computed, runner_.options().tokens_per_step)};
    BOLIDE_TRY(runner_.step(std::span(&work, 1), nullptr, cancel));
  }
  return {};
}

Result<Runner::Ticket> Generator::submit_ahead(const GenerateRequest& request, int32_t generated) {
  const RunnerOptions& options = runner_.options();
  const SamplingParams& p = request.sampling;
  const bool by_history = p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  const int32_t size = sequence_.size();
  const int64_t boundary = runner_.rope_switch();
  const bool crosses = boundary > 0 && sequence_.rope_length <= boundary && size + 1 > boundary;
  if (!options.deferred || by_history || crosses || sequence_.computed != size || size + 1 >= options.context ||
      (request.tokens_max >= 0 && generated + 1 >= request.tokens_max))
    return Runner::Ticket{0};
  sequence_.tokens.push_back(0);  // a placeholder: the device knows the id
  const Work work{&sequence_, 1};
  auto ticket = runner_.submit(std::span(&work, 1), /*chained=*/true);
  if (!ticket) sequence_.tokens.pop_back();
  return ticket;
}

Result<GenerateResult> Generator::generate(const GenerateRequest& request,
                                           FunctionRef<void(std::string_view)> on_text) {
  GenerateResult result;
  Detokenizer detokenizer(tokenizer_);
  StopFilter filter(request.stop);
  const auto show = [&](const std::string& text) {
    if (text.empty()) return;
    result.text += text;
    on_text(text);
  };

  const auto start = Clock::now();
  if (auto done = prefill(request, &result.timings); !done) {
    if (done.error().code != Code::kCancelled) return std::move(done).error();
    result.finish = FinishReason::kCancelled;
    result.timings.prompt_ms = ms_since(start);
    return result;
  }
  result.timings.prompt_ms = ms_since(start);
  const auto first_token = Clock::now();

  result.finish = FinishReason::kLength;
  Runner::Ticket now = 0;  // the step whose token is read next, if it has not been waited for
  // A step that was submitted and is not wanted leaves the sequence.
  const auto drop = [&](Runner::Ticket ahead) -> Result<> {
    if (ahead == 0) return {};
    runner_.truncate(sequence_, sequence_.size() - 1);
    return runner_.settle();
  };
  while (request.tokens_max < 0 || result.timings.generated_tokens < request.tokens_max) {
    BOLIDE_TRY(const Runner::Ticket ahead, submit_ahead(request, result.timings.generated_tokens));
    if (now != 0) BOLIDE_TRY(runner_.wait(now));
    now = 0;
    const int32_t id = runner_.next()[0];
    const float logprob = runner_.logprobs()[0];
    ++result.timings.generated_tokens;
    result.timings.decode_ms = ms_since(first_token);
    if (contains(request.stop_ids, id)) {
      result.finish = FinishReason::kStop;
      BOLIDE_TRY(drop(ahead));
      break;
    }
    result.tokens.push_back(id);
    result.logprobs.push_back(logprob);
    std::string text = detokenizer.push(id);
    show(result.timings.generated_tokens <= request.tokens_min ? std::move(text) : filter.push(text));
    if (filter.stopped() || (request.cancel != nullptr && request.cancel->load())) {
      result.finish = filter.stopped() ? FinishReason::kStop : FinishReason::kCancelled;
      BOLIDE_TRY(drop(ahead));
      break;
    }
    if (ahead != 0) {
      sequence_.tokens.back() = id;
      now = ahead;
      continue;
    }
    sequence_.tokens.push_back(id);
    if (result.timings.generated_tokens == request.tokens_max) break;
    result.context_full = sequence_.size() >= runner_.options().context;
    if (result.context_full) break;
    const int64_t boundary = runner_.rope_switch();
    // Longrope rotates every key by the length at hand: crossing its boundary computes them all again.
    if (boundary > 0 && sequence_.rope_length <= boundary && sequence_.size() > boundary) sequence_.computed = 0;
    if (auto done = compute_rest(request.cancel); !done) {
      if (done.error().code != Code::kCancelled) return std::move(done).error();
      result.finish = FinishReason::kCancelled;
      break;
    }
  }
  show(filter.push(detokenizer.flush()));
  show(filter.flush());
  return result;
}

}  // namespace bolide
