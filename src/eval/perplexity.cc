#include "eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "eval/logits.h"
#include "eval/token_stream.h"

namespace bolide {
namespace {

// Logits of a step: rows of a large vocabulary are large.
constexpr int32_t kRowsMax = 128;

Result<> check_sizes(const PerplexityOptions& options) {
  if (options.window < 2) return error(Code::kInvalid, fmt::format("--window {}: must be at least 2", options.window));
  if (options.skip < 0 || options.skip > options.window - 2)
    return error(Code::kInvalid, fmt::format("--skip {}: must be from 0 to the window's size less 2, {}", options.skip,
                                             options.window - 2));
  return {};
}

Result<> check_options(const PerplexityOptions& options, const Runner& runner) {
  BOLIDE_TRY(check_sizes(options));
  if (options.window > runner.options().context)
    return error(Code::kInvalid, fmt::format("--window {}: the model was opened for {} tokens", options.window,
                                             runner.options().context));
  return {};
}

Error too_short(const TokenStream& stream, const PerplexityOptions& options) {
  return error(Code::kInvalid, fmt::format("the text has {} tokens, a window {}; take a longer text or a smaller "
                                           "--window",
                                           stream.ids.size(), options.window));
}

}  // namespace

Result<> text_suffices(const Tokenizer& tokenizer, std::string_view text, const PerplexityOptions& options) {
  BOLIDE_TRY(check_sizes(options));
  constexpr size_t kTokenBytes = 64;  // far more than tokens have on average
  if (text.size() / kTokenBytes >= static_cast<size_t>(options.window)) return {};
  BOLIDE_TRY(const TokenStream stream, tokenise(tokenizer, text));
  if (stream.ids.size() < static_cast<size_t>(options.window)) return too_short(stream, options);
  return {};
}

void prepare_options(const PerplexityOptions& options, ModelOptions* open) {
  open->context = std::max(open->context, options.window);
  open->sequences = 1;
  open->rows_max = std::max(open->rows_max, std::clamp(options.window - options.skip - 1, 1, kRowsMax));
}

Result<PerplexityResult> measure_perplexity(Model& model, std::string_view text, const PerplexityOptions& options,
                                            const FunctionRef<void(const PerplexityProgress&)>* progress) {
  BOLIDE_TRY(check_options(options, *model.runner));
  BOLIDE_TRY(TokenStream stream, tokenise(model.tokenizer, text));
  const auto window = static_cast<size_t>(options.window);
  PerplexityResult result;
  result.text_tokens = static_cast<int64_t>(stream.ids.size());
  result.windows = static_cast<int64_t>(stream.ids.size() / window);
  if (options.windows_max > 0) result.windows = std::min(result.windows, options.windows_max);
  if (result.windows == 0) return too_short(stream, options);

  WindowRunner runner(*model.runner);
  double sum = 0, squares = 0;
  for (int64_t w = 0; w < result.windows; ++w) {
    const auto ids = std::span(stream.ids).subspan(static_cast<size_t>(w) * window, window);
    if (stream.beginning.has_value()) ids[0] = *stream.beginning;
    const auto tell = [&](int64_t windows_done, int32_t tokens_done) {
      if (progress != nullptr)
        (*progress)({windows_done, result.windows, tokens_done, options.window,
                     std::exp(sum / static_cast<double>(result.tokens))});
    };
    const auto score = [&](int32_t position, std::span<const float> logits) {
      const double nll = -log_probability(logits, ids[static_cast<size_t>(position) + 1]);
      sum += nll;
      squares += nll * nll;
      ++result.tokens;
    };
    const auto step_done = [&](int32_t tokens_done) { tell(w, tokens_done); };
    const FunctionRef<void(int32_t)> on_step(step_done);
    // Nothing follows the last token: it is not computed.
    BOLIDE_TRY(runner.run(ids.first(window - 1), options.skip, score, &on_step));
    tell(w + 1, 0);
  }
  const auto count = static_cast<double>(result.tokens);
  const double mean = sum / count, variance = std::max(squares / count - mean * mean, 0.);
  result.perplexity = std::exp(mean);
  result.standard_error = result.tokens > 1 ? std::sqrt(variance / (count - 1)) * result.perplexity : 0;
  return result;
}

}  // namespace bolide
