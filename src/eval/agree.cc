#include "eval/agree.h"

#include <fmt/format.h>

#include <algorithm>

#include "eval/logits.h"
#include "eval/token_stream.h"

namespace bolide {
namespace {

// Logits of a step. A whole window of the reference is kept: window * vocabulary * 4 bytes.
constexpr int32_t kRowsMax = 128;

}  // namespace

void prepare_options(const AgreeOptions& options, ModelOptions* open) {
  open->context = std::max(open->context, options.window);
  open->sequences = 1;
  open->rows_max = std::max(open->rows_max, std::clamp(options.window, 1, kRowsMax));
}

Result<AgreeResult> measure_agreement(Model& model, Model& reference, std::string_view text,
                                      const AgreeOptions& options,
                                      const FunctionRef<void(int64_t, int64_t)>* progress) {
  const int64_t vocab = reference.runner->vocab();
  if (model.runner->vocab() != vocab)
    return error(Code::kInvalid, fmt::format("the vocabularies have {} and {} tokens: the models cannot be compared",
                                             model.runner->vocab(), vocab));
  if (options.window < 1 || options.window > model.runner->options().context ||
      options.window > reference.runner->options().context)
    return error(
        Code::kInvalid,
        fmt::format("--window {}: must be from 1 to the context that the models were opened for", options.window));
  BOLIDE_TRY(TokenStream stream, tokenise(reference.tokenizer, text));
  if (stream.ids.empty()) return error(Code::kInvalid, "the text has no tokens");
  const auto window = static_cast<size_t>(options.window);
  auto windows = static_cast<int64_t>((stream.ids.size() + window - 1) / window);
  if (options.windows_max > 0) windows = std::min(windows, options.windows_max);

  WindowRunner ours(*model.runner), theirs(*reference.runner);
  AgreeResult result;
  double kl = 0;
  int64_t same = 0;
  std::vector<float> want;
  const auto tokens_all = std::min(windows * options.window, static_cast<int64_t>(stream.ids.size()));
  int64_t tokens_before = 0;  // of both models, in earlier windows
  const auto step_done = [&](int32_t tokens) {
    if (progress != nullptr) (*progress)(tokens_before + tokens, 2 * tokens_all);
  };
  const FunctionRef<void(int32_t)> on_step(step_done);
  for (int64_t w = 0; w < windows; ++w) {
    const size_t begin = static_cast<size_t>(w) * window;
    const auto ids = std::span(stream.ids).subspan(begin, std::min(window, stream.ids.size() - begin));
    if (stream.beginning.has_value()) ids[0] = *stream.beginning;
    want.clear();
    BOLIDE_TRY(
        theirs
            .run(
                ids, 0,
                [&](int32_t, std::span<const float> logits) { want.insert(want.end(), logits.begin(), logits.end()); },
                &on_step)
            .context("the reference"));
    tokens_before += static_cast<int64_t>(ids.size());
    const auto compare = [&](int32_t position, std::span<const float> logits) {
      const auto row =
          std::span<const float>(want).subspan(static_cast<size_t>(position) * logits.size(), logits.size());
      const double divergence = kl_divergence(row, logits);
      kl += divergence;
      result.kl_max = std::max(result.kl_max, divergence);
      same += argmax(row) == argmax(logits) ? 1 : 0;
      ++result.tokens;
    };
    BOLIDE_TRY(ours.run(ids, 0, compare, &on_step));
    tokens_before += static_cast<int64_t>(ids.size());
  }
  result.kl_mean = kl / static_cast<double>(result.tokens);
  result.top1 = static_cast<double>(same) / static_cast<double>(result.tokens);
  return result;
}

}  // namespace bolide
