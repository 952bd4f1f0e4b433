// Token ids in one at a time, text out as soon as it is certain.
#pragma once

#include <string>

#include "text/decoder.h"
#include "text/tokenizer.h"

namespace bolide {

// One answer being written; owned by one thread. What push and flush return, joined, equals Tokenizer::decode of all
// the ids; each part is valid UTF-8 by itself, so a character of several tokens comes with its last one.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, bool skip_special = true);

  // Often empty. Ids that do not exist are skipped.
  std::string push(int32_t id);
  // What was still held back; call once, at the end. A push after it starts a new text.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  DecodeStream stream_;
  bool skip_special_;
};

}  // namespace bolide
