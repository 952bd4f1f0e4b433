// Oniguruma regular expressions (Ruby syntax, as tokenizer.json has them) on PCRE2 with JIT.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

struct RegexMatch {
  size_t begin = 0, end = 0;
  bool found = false;
};

// A compiled expression. Immutable, any thread; a copy shares the compiled code.
class Regex {
 public:
  // Errors: kInvalid (syntax), kUnsupported (Oniguruma syntax without an equivalent); both name the expression.
  static Result<Regex> compile(std::string_view pattern);

  // The first match at or after `from`. `text` must be valid UTF-8 and `from` on a character's first byte.
  // Errors: kInvalid if matching exceeds its limit of steps or memory.
  Result<RegexMatch> find(std::string_view text, size_t from) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> code_;
};

// All matches in order, as the tokenizers library iterates them: after a match the search goes on at its end, and an
// empty match right there is skipped.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}
  // found is false when there are no more.
  Result<RegexMatch> next();

 private:
  const Regex& regex_;
  std::string_view text_;
  size_t from_ = 0;
  size_t last_end_ = static_cast<size_t>(-1);
};

// An empty literal matches between all characters, which only the regular expression can say.
inline bool needs_regex(const TextPattern& pattern) { return pattern.regex || pattern.text.empty(); }

// The PCRE2 expression with the same meaning; for tests and error messages.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace bolide
