// AnswerText: the tokens of one answer become text, as soon as it is certain that no stop string begins in it; each
// token comes with the part of the text in which it ends.
//
// Thread rules: one thread, whichever reads the answer's progress.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "text/detokenizer.h"

namespace bolide {

// Of valid UTF-8.
size_t characters_of(std::string_view text);

struct TextPart {
  struct Alternative {
    std::string bytes;
    float logprob = 0;
  };
  struct Token {
    int32_t id = 0;
    float logprob = 0;             // NaN: it has none
    std::string bytes;             // what the token stands for: several tokens may make one character
    std::vector<Alternative> top;  // the likeliest in its place, likeliest first, if they were asked for
    size_t offset = 0;             // where its text begins, in characters of the answer
  };
  std::string text;           // UTF-8
  std::vector<Token> tokens;  // that are shown now; one with no text of its own comes with its neighbours'
};

class AnswerText {
 public:
  // `with_tokens`: parts name their tokens, which costs a copy of each. Stop strings are looked for in what follows the
  // first `tokens_min` tokens. `offset`: characters in front of the answer, of what counts as its text.
  AnswerText(Tokenizer tokenizer, std::vector<std::string> stops, bool with_tokens, int32_t tokens_min = 0,
             size_t offset = 0);

  // What may be shown after this token, often nothing. After a stop string nothing more comes.
  TextPart push(int32_t id, float logprob, std::span<const TokenLogprob> top = {});
  // The rest, at the end of the answer.
  TextPart finish();
  // A stop string was found: the answer is over, and its text ends before it.
  bool stopped() const { return filter_.stopped(); }

 private:
  struct Held {
    TextPart::Token token;
    size_t begin;  // of its text, in all text so far
    size_t end;
  };
  TextPart part(std::string text);

  Tokenizer tokenizer_;
  Detokenizer detokenizer_;
  StopFilter filter_;
  bool with_tokens_;
  int32_t unstoppable_;  // tokens still to come in which no stop string is looked for
  std::deque<Held> held_;
  size_t certain_ = 0, shown_ = 0;  // bytes of text: that left the detokeniser, that left the filter
  size_t characters_;               // of the first, and in front of it
};

}  // namespace bolide
