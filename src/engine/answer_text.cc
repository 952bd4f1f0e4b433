#include "engine/answer_text.h"

namespace bolide {

size_t characters_of(std::string_view text) {
  size_t characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return characters;
}

AnswerText::AnswerText(Tokenizer tokenizer, std::vector<std::string> stops, bool with_tokens, int32_t tokens_min,
                       size_t offset)
    : tokenizer_(tokenizer),
      detokenizer_(std::move(tokenizer)),
      filter_(std::move(stops)),
      with_tokens_(with_tokens),
      unstoppable_(tokens_min),
      characters_(offset) {}

TextPart AnswerText::push(int32_t id, float logprob, std::span<const TokenLogprob> top) {
  if (stopped()) return {};
  std::string text = detokenizer_.push(id);
  if (with_tokens_) {
    const size_t begin = certain_;
    TextPart::Token token{id, logprob, tokenizer_.token_bytes(id), {}, characters_};
    for (const TokenLogprob& t : top) token.top.push_back({tokenizer_.token_bytes(t.id), t.logprob});
    held_.push_back({std::move(token), begin, begin + text.size()});
    characters_ += characters_of(text);
  }
  certain_ += text.size();
  if (unstoppable_ > 0) {
    --unstoppable_;
    return part(std::move(text));
  }
  return part(filter_.push(text));
}

TextPart AnswerText::finish() {
  if (stopped()) return {};
  std::string text = detokenizer_.flush();
  certain_ += text.size();
  if (!held_.empty()) held_.back().end = certain_;
  std::string shown = filter_.push(text);
  shown += filter_.flush();
  return part(std::move(shown));
}

// The tokens whose text has been shown. Those that a stop string cut in two are shown, those within it are not.
TextPart AnswerText::part(std::string text) {
  shown_ += text.size();
  TextPart part{std::move(text), {}};
  while (!held_.empty() && (held_.front().end <= shown_ || (stopped() && held_.front().begin < shown_))) {
    part.tokens.push_back(std::move(held_.front().token));
    held_.pop_front();
  }
  if (stopped()) held_.clear();
  return part;
}

}  // namespace bolide
