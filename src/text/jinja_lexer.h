// Template source to tokens, as Jinja2's lexer does with trim_blocks and lstrip_blocks and without
// keep_trailing_newline: text around tags is stripped here, comments and raw blocks are gone afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace bolide::jinja {

constexpr size_t kSourceBytesMax = 1 << 20;  // the largest published templates are under 100 KB

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // text is the value, escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  uint32_t offset = 0;  // into the source
};

// Lines end in \n only, and one newline at the very end is dropped.
std::string normalise_source(std::string_view source);

// Errors: kInvalid with line and column.
Result<std::vector<Token>> tokenize(std::string_view normalised_source);

// "line 3, column 14: what"
Error syntax_error(std::string_view source, size_t offset, std::string_view what);
int line_of(std::string_view source, size_t offset);

}  // namespace bolide::jinja
