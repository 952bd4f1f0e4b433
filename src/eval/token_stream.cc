#include "eval/token_stream.h"

#include <algorithm>

namespace bolide {

Result<TokenStream> tokenise(const Tokenizer& tokenizer, std::string_view text) {
  TokenStream stream;
  BOLIDE_TRY(stream.ids, tokenizer.encode(text, {.add_special = false, .parse_special = false}));
  // What the post-processor puts in front of a text, seen on one.
  BOLIDE_TRY(const auto plain, tokenizer.encode("a", {.add_special = false}));
  BOLIDE_TRY(const auto whole, tokenizer.encode("a", {.add_special = true}));
  const bool has_front = whole.size() > plain.size() && !std::equal(plain.begin(), plain.end(), whole.begin());
  if (has_front && tokenizer.bos_id() == whole[0]) {
    stream.beginning = whole[0];
    stream.ids.insert(stream.ids.begin(), whole[0]);
  }
  return stream;
}

Result<> WindowRunner::run(std::span<const int32_t> window, int32_t first,
                           FunctionRef<void(int32_t, std::span<const float>)> see,
                           const FunctionRef<void(int32_t)>* progress) {
  const auto size = static_cast<int32_t>(window.size());
  const auto rows_max = static_cast<int32_t>(runner_.plans().limits().sizes[Symbol::kRows]);
  Sequence sequence;
  sequence.tokens.assign(window.begin(), window.end());
  sequence.prompt_count = size;
  Result<> done;
  while (done && sequence.computed < size) {
    const int32_t begin = sequence.computed;
    const bool wanted = begin >= first;
    const int32_t most =
        wanted ? std::min(runner_.options().tokens_per_step, rows_max) : runner_.options().tokens_per_step;
    const Work work{&sequence, std::min(most, (wanted ? size : first) - begin), wanted};
    done = runner_.step(std::span(&work, 1));
    if (done && progress != nullptr) (*progress)(sequence.computed);
    if (!done || !wanted) continue;
    const auto rows = runner_.logits();
    if (!rows) {
      done = Result<TensorView>(rows).error();
      break;
    }
    const TensorView logits = *rows;
    for (int32_t row = 0; row < work.tokens; ++row)
      see(begin + row, {logits.row<float>(row), static_cast<size_t>(logits.cols())});
  }
  runner_.truncate(sequence, 0);
  return done;
}

}  // namespace bolide
