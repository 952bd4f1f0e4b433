#include "text/detokenizer.h"

#include "text/tokenizer_parts.h"

namespace bolide {

Detokenizer::Detokenizer(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), stream_(tokenizer_.parts_->decoders), skip_special_(skip_special) {}

std::string Detokenizer::push(int32_t id) {
  std::string_view text;
  if (tokenizer_.text_to_decode(id, skip_special_, &text) == nullptr) return {};
  stream_.push(text);
  return stream_.take();
}

std::string Detokenizer::flush() {
  stream_.finish();
  std::string rest = stream_.take();
  stream_ = DecodeStream(tokenizer_.parts_->decoders);
  return rest;
}

}  // namespace bolide
