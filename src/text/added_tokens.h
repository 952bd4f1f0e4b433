// Tokens that are found in the text itself, before the model sees it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"
#include "text/byte_trie.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace bolide {

// A stretch of text, or (id >= 0) the added token that stands there.
struct TextPart {
  size_t begin = 0, end = 0;
  int32_t id = -1;
};

// Immutable, any thread.
class AddedTokens {
 public:
  // Ids: the vocabulary's if it has the content, else the given one (in place of what the vocabulary has there: a
  // reserved token), or the next above all others if another added token has that.
  // Errors: kInvalid for contents longer than 1024 bytes (a search looks that far ahead from every byte).
  static Result<AddedTokens> create(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary,
                                    const Normalizer& normalizer);

  // Cuts a text by the tokens that are looked for before (normalized false) or after normalising; the leftmost match
  // first, the longest of those. With skip_special, special tokens are text like any other.
  void split(std::string_view text, bool normalized, bool skip_special, std::vector<TextPart>& out) const;

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  // What the token decodes to: its content, normalised if it is looked for in normalised text.
  std::string_view text(const AddedToken& token) const;
  bool is_special(std::string_view content) const;
  int32_t id_end() const { return id_end_; }  // one more than the largest id
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  void add(AddedToken token, const Vocabulary& vocabulary);

  std::vector<AddedToken> tokens_;  // distinct contents
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  ByteTrie raw_, normalized_;  // values: places in tokens_
  std::vector<std::string> normalized_contents_;
  int32_t id_end_ = 0;
};

}  // namespace bolide
