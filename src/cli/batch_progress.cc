#include "cli/batch_progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace bolide::cli {
namespace {

double rate(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string progress_text(const BatchTotals& totals, const server::BatchCounts& counts, int64_t drawn, double seconds) {
  constexpr uint64_t kWidth = 20;
  const uint64_t done = totals.done(counts), here = done - totals.answered_before;
  const uint64_t filled = totals.requests > 0 ? std::min(done * kWidth / totals.requests, kWidth) : kWidth;
  std::string text = fmt::format("[{:#<{}}{:-<{}}] {} of {}", "", filled, "", kWidth - filled, done, totals.requests);
  if (const uint64_t failed = totals.failed(counts); failed > 0) text += fmt::format(", {} failed", failed);
  text += fmt::format(", {:.0f} tokens/s", rate(drawn, seconds));
  // Before a few are done, what one takes says little of how many are done at once.
  if (here > counts.under_way)
    text += fmt::format(", {} left",
                        duration_text(seconds * static_cast<double>(totals.left(counts)) / static_cast<double>(here)));
  return text;
}

std::string summary_text(const BatchTotals& totals, const server::BatchCounts& counts, double seconds) {
  std::string text = fmt::format("{} requests: {} answered, {} failed", totals.requests,
                                 totals.done(counts) - totals.failed(counts), totals.failed(counts));
  if (totals.answered_before > 0) text += fmt::format(" ({} by earlier runs)", totals.answered_before);
  const int64_t tokens = counts.prompt_tokens + counts.completion_tokens;
  if (tokens == 0) return text;
  return text + fmt::format("; prompts {} tokens, answers {} tokens in {}: {:.1f} tokens/s, {:.1f} of answers",
                            counts.prompt_tokens, counts.completion_tokens, duration_text(seconds),
                            rate(tokens, seconds), rate(counts.completion_tokens, seconds));
}

std::string summary_json(const BatchTotals& totals, const server::BatchCounts& counts, double seconds) {
  return fmt::format(
      R"({{"requests":{},"answered":{},"failed":{},"left":{},"before":{},"prompt_tokens":{},"completion_tokens":{},)"
      R"("seconds":{:.3f},"tokens_per_second":{:.3f},"completion_tokens_per_second":{:.3f}}})",
      totals.requests, totals.done(counts) - totals.failed(counts), totals.failed(counts), totals.left(counts),
      totals.answered_before, counts.prompt_tokens, counts.completion_tokens, seconds,
      rate(counts.prompt_tokens + counts.completion_tokens, seconds), rate(counts.completion_tokens, seconds));
}

}  // namespace bolide::cli
