// Generator: one conversation on a Runner: prefill in chunks, then a token a step; keeps what a following prompt
// shares.
//
// Thread rules: one thread, the runner's.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/runner.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace bolide {

struct GenerateRequest {
  std::vector<int32_t> prompt;  // ids; at least one
  SamplingParams sampling;
  int32_t tokens_max = -1;        // -1: until the context is full
  int32_t tokens_min = 0;         // no `stop` is looked for in their text; sampling.biases keeps stop_ids away
  std::vector<int32_t> stop_ids;  // end-of-text ids
  std::vector<std::string> stop;  // strings; the text ends before the first
  uint64_t request = 0;
  // Told after each step of the prompt how many of its tokens are computed.
  const FunctionRef<void(int32_t done, int32_t all)>* on_prompt = nullptr;
  const std::atomic<bool>* cancel = nullptr;  // set from a signal handler: ends the answer within its running step
};

// Errors: a prompt of so many tokens has no room, with one of the answer, in `context` tokens; or there are none.
Result<> prompt_fits(size_t prompt_tokens, int32_t context);

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };
std::string_view to_string(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerateTimings {
  int32_t prompt_tokens = 0;    // of the prompt
  int32_t computed_tokens = 0;  // of them computed: not found in the cache, and reached before a cancellation
  int32_t generated_tokens = 0;
  double prompt_ms = 0;  // from the call to the first token, or to the cancellation
  double decode_ms = 0;  // from the first token to the last
};

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;  // without the end-of-text token
  std::vector<float> logprobs;  // of each
  FinishReason finish = FinishReason::kStop;
  bool context_full = false;  // why kLength: the context, not the request's tokens_max
  GenerateTimings timings;
};

// Holds back text that may be the beginning of a stop string.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // The text that may be shown now. After a stop string was found nothing more comes and stopped() is true.
  std::string push(std::string_view text);
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

class Generator {
 public:
  Generator(Runner& runner, const Tokenizer& tokenizer) : runner_(runner), tokenizer_(tokenizer) {}
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  // Gives the cache's blocks back; the runner must still be there.
  ~Generator() { runner_.truncate(sequence_, 0); }

  // `on_text` sees each piece of text as it becomes certain. A prompt that shares its beginning with the last call's
  // tokens computes only the rest. Errors: the prompt is empty or does not fit the context.
  Result<GenerateResult> generate(const GenerateRequest& request, FunctionRef<void(std::string_view)> on_text);

 private:
  Result<> prefill(const GenerateRequest& request, GenerateTimings* timings);
  // The sequence's tokens that are not computed yet.
  Result<> compute_rest(const std::atomic<bool>* cancel);
  // Submits the step after the one whose token is still to be read, if nothing of it can depend on that token but its
  // id. 0: not submitted.
  Result<Runner::Ticket> submit_ahead(const GenerateRequest& request, int32_t generated);

  Runner& runner_;
  const Tokenizer& tokenizer_;
  Sequence sequence_;
};

}  // namespace bolide
