// Checks a tokenizer folder (or a model folder) against the results of the tokenizers library that lie in it.
//
// The format is that of golden.json[.xz] with the keys texts, id_lists, with_config_tokens, chat (tokenizer folders)
// or text (model folders). Files may be plain or .xz.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace bolide {

// One kind of check over the whole folder: how many results differ, of how many.
struct TokenizerCheck {
  std::string check;  // "ids", "decoded", "incremental", ...
  int64_t got = 0;    // results that differ
  int64_t limit = 0;  // how many may: none
  int64_t count = 0;  // results compared
  bool pass() const { return got <= limit; }
  std::string first_difference;  // for the user; empty if none
};

// Chats are rendered with the tokenizer's own template, and their ids compared with the ids of the golden text.
// Errors: kNotFound or kInvalid if the folder's files cannot be read or are no tokenizer or golden.
Result<std::vector<TokenizerCheck>> check_tokenizer_golden(const std::filesystem::path& folder);

// The same for a golden's text and a tokenizer already made; `configured` is the tokenizer with the additions of
// tokenizer_config.json, and `config` that file's text, whose special tokens the templates see. An entry of `texts`
// with "error": true must be refused.
Result<std::vector<TokenizerCheck>> check_tokenizer_cases(std::string_view golden_text, const Tokenizer& plain,
                                                          const Tokenizer& configured, std::string_view config = {});

}  // namespace bolide
