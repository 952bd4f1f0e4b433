// A text as the tokens that an evaluation runs over, and logits of a window of them.
//
// Thread rules: the model's thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "app/model.h"

namespace bolide {

struct TokenStream {
  std::vector<int32_t> ids;          // the beginning-of-text token first, if the tokenizer puts one there
  std::optional<int32_t> beginning;  // that token
};

// Special tokens written in the text are plain text. Errors: invalid UTF-8.
Result<TokenStream> tokenise(const Tokenizer& tokenizer, std::string_view text);

// Runs windows of tokens, each from an empty context, over one sequence.
class WindowRunner {
 public:
  // The runner's context must hold `window` tokens.
  explicit WindowRunner(Runner& runner) : runner_(runner) {}

  // The logits that follow tokens [first, window.size()) of the window, in order: `see(position, logits)` once each.
  // `progress` is told after each step how many of the window's tokens are computed.
  Result<> run(std::span<const int32_t> window, int32_t first, FunctionRef<void(int32_t, std::span<const float>)> see,
               const FunctionRef<void(int32_t)>* progress = nullptr);

 private:
  Runner& runner_;
};

}  // namespace bolide
