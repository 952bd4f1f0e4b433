// Perplexity of a model on a text, by llama.cpp's definition, so that the two can be compared: windows that do not
// overlap, each from an empty context; in each the tokens behind the first `skip` + 1 are scored. The first token of a
// window is replaced by the beginning-of-text token where the tokenizer adds one. What is left over is not scored.
//
// Thread rules: the model's thread.
#pragma once

#include <string_view>

#include "app/model.h"

namespace bolide {

struct PerplexityOptions {
  int32_t window = 512;     // tokens
  int32_t skip = 256;       // tokens at a window's start whose predictions do not count
  int64_t windows_max = 0;  // 0: all that the text has
};

struct PerplexityResult {
  double perplexity = 0;      // exp of the mean negative log-likelihood
  double standard_error = 0;  // of the perplexity
  int64_t tokens = 0;         // scored
  int64_t text_tokens = 0;    // of the text, with its beginning
  int64_t windows = 0;
};

// After each step.
struct PerplexityProgress {
  int64_t windows_done = 0, windows = 0;
  int32_t tokens_done = 0, tokens = 0;  // of the window at hand; none of it is done when a window has just ended
  double perplexity = 0;                // so far; NaN before a token is scored
};

// The model options that a perplexity run needs: context, rows, sequences.
void prepare_options(const PerplexityOptions& options, ModelOptions* open);

// What measure_perplexity would say of a text that is too short, known from the tokenizer alone. Long texts pass
// unlooked at.
Result<> text_suffices(const Tokenizer& tokenizer, std::string_view text, const PerplexityOptions& options);

// Errors: sizes that make no sense, a text shorter than one window, a model opened with too short a context.
Result<PerplexityResult> measure_perplexity(Model& model, std::string_view text, const PerplexityOptions& options,
                                            const FunctionRef<void(const PerplexityProgress&)>* progress = nullptr);

}  // namespace bolide
