#include "text/jinja_lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

constexpr size_t kBracketsMax = 200;
constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ","};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) BOLIDE_TRY(root());
    push(TokenKind::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string text, size_t offset) {
    tokens_.push_back({kind, std::move(text), static_cast<uint32_t>(offset)});
  }
  Error fail(size_t offset, std::string_view what) const { return syntax_error(source_, offset, what); }

  bool next_is(std::string_view what) const { return source_.substr(at_).starts_with(what); }
  size_t skip_space(size_t at) const {
    while (at < source_.size() && is_space(character(source_, at))) at += character_size(source_, at);
    return at;
  }
  // Everything up to at_ has been read: does a line start here?
  void tag_ended() { line_starting_ = source_[at_ - 1] == '\n'; }

  // Text before a tag, as the tag's sign and lstrip_blocks want it.
  void push_text(size_t from, size_t to, char sign, bool variable) {
    std::string_view text = source_.substr(from, to - from);
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && !variable) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && strip(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) push(TokenKind::kData, std::string(text), from);
  }

  static char sign_at(std::string_view source, size_t at) {
    return at < source.size() && (source[at] == '-' || source[at] == '+') ? source[at] : '\0';
  }

  // After a block tag or comment: "-%}" takes the whitespace behind it, "%}" one newline, "+%}" nothing.
  void end_tag(char sign) {
    if (sign == '-')
      at_ = skip_space(at_);
    else if (sign != '+' && at_ < source_.size() && source_[at_] == '\n')
      ++at_;
    tag_ended();
  }

  Result<> root() {
    size_t tag = at_;
    do {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        push(TokenKind::kData, std::string(source_.substr(at_)), at_);
        at_ = source_.size();
        return {};
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    } while (true);

    const char type = source_[tag + 1];
    const char sign = sign_at(source_, tag + 2);
    push_text(at_, tag, sign, type == '{');
    at_ = tag + 2 + (sign != '\0' ? 1 : 0);
    if (type == '#') return comment(tag);
    if (type == '%' && raw_begins()) return raw(tag);
    push(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "", tag);
    return inside(type == '{', tag);
  }

  Result<> comment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) return fail(tag, "this comment has no end '#}'");
    const char sign = end > at_ ? sign_at(source_, end - 1) : '\0';
    at_ = end + 2;
    end_tag(sign);
    return {};
  }

  // At the inside of "{% raw %}": goes past it.
  bool raw_begins() {
    size_t at = skip_space(at_);
    if (!source_.substr(at).starts_with("raw")) return false;
    at = skip_space(at + 3);
    const std::string_view rest = source_.substr(at);
    if (rest.starts_with("-%}")) {
      at_ = skip_space(at + 3);
    } else if (rest.starts_with("%}")) {
      at_ = at + 2;
    } else {
      return false;
    }
    tag_ended();
    return true;
  }

  Result<> raw(size_t tag) {
    for (size_t open = source_.find("{%", at_); open != std::string_view::npos; open = source_.find("{%", open + 2)) {
      const char sign = sign_at(source_, open + 2);
      size_t at = skip_space(open + 2 + (sign != '\0' ? 1 : 0));
      if (!source_.substr(at).starts_with("endraw")) continue;
      at = skip_space(at + 6);
      const char end_sign = sign_at(source_, at);
      if (end_sign != '\0') ++at;
      if (!source_.substr(at).starts_with("%}")) continue;
      push_text(at_, open, sign, false);
      at_ = at + 2;
      end_tag(end_sign);
      return {};
    }
    return fail(tag, "this raw block has no '{% endraw %}'");
  }

  Result<> inside(bool variable, size_t tag) {
    std::string brackets;
    while (at_ < source_.size()) {
      if (brackets.empty()) {
        if (variable && (next_is("-}}") || next_is("}}"))) {
          const bool minus = source_[at_] == '-';
          push(TokenKind::kVariableEnd, "", at_);
          at_ += minus ? 3 : 2;
          if (minus) at_ = skip_space(at_);
          tag_ended();
          return {};
        }
        if (!variable && (next_is("-%}") || next_is("+%}") || next_is("%}"))) {
          const char sign = sign_at(source_, at_);
          push(TokenKind::kBlockEnd, "", at_);
          at_ += sign != '\0' ? 3 : 2;
          end_tag(sign);
          return {};
        }
      }
      if (is_space(character(source_, at_))) {
        at_ = skip_space(at_);
        continue;
      }
      BOLIDE_TRY(token(brackets));
    }
    return fail(tag, variable ? "this tag has no end '}}'" : "this tag has no end '%}'");
  }

  Result<> token(std::string& brackets) {
    const char c = source_[at_];
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return quoted();
    if (is_word(character(source_, at_))) {
      const size_t start = at_;
      while (at_ < source_.size() && is_word(character(source_, at_))) at_ += character_size(source_, at_);
      push(TokenKind::kName, std::string(source_.substr(start, at_ - start)), start);
      return {};
    }
    const auto* found = std::find_if(kOperators.begin(), kOperators.end(), [&](auto op) { return next_is(op); });
    if (found == kOperators.end())
      return fail(at_, fmt::format("unexpected character '{}'", source_.substr(at_, character_size(source_, at_))));
    if (*found == "(" || *found == "[" || *found == "{") {
      if (brackets.size() >= kBracketsMax) return fail(at_, "brackets are nested too deeply");
      brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (*found == ")" || *found == "]" || *found == "}") {
      if (brackets.empty()) return fail(at_, fmt::format("unexpected '{}'", c));
      if (brackets.back() != c) return fail(at_, fmt::format("unexpected '{}', expected '{}'", c, brackets.back()));
      brackets.pop_back();
    }
    push(TokenKind::kOperator, std::string(*found), at_);
    at_ += found->size();
    return {};
  }

  // Digits with single underscores between them; where they end, or nothing.
  template <class Digit>
  std::optional<size_t> digits(size_t at, bool underscore_first, Digit digit) const {
    const size_t start = at;
    while (at < source_.size()) {
      if (digit(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && (at > start || underscore_first) && at + 1 < source_.size() &&
                 digit(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    if (at == start) return std::nullopt;
    return at;
  }

  Result<> number() {
    const size_t start = at_;
    const auto finish = [&](TokenKind kind, size_t end) {
      std::string text(source_.substr(start, end - start));
      std::erase(text, '_');
      push(kind, std::move(text), start);
      at_ = end;
      return Result<>();
    };
    const bool after_dot = start > 0 && source_[start - 1] == '.';
    if (!after_dot) {
      size_t end = *digits(start, false, is_digit);
      bool real = false;
      if (end + 1 < source_.size() && source_[end] == '.')
        if (const auto fraction = digits(end + 1, false, is_digit)) {
          end = *fraction;
          real = true;
        }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
        if (const auto exponent = digits(end + 1 + sign, false, is_digit)) {
          end = *exponent;
          real = true;
        }
      }
      if (real) return finish(TokenKind::kFloat, end);
    }
    if (source_[start] == '0' && start + 1 < source_.size()) {
      const char base = static_cast<char>(source_[start + 1] | 0x20);
      const auto based = [&](int radix) {
        return digits(start + 2, true, [radix](char d) { return hex_digit(d) >= 0 && hex_digit(d) < radix; });
      };
      std::optional<size_t> end;
      if (base == 'b') end = based(2);
      if (base == 'o') end = based(8);
      if (base == 'x') end = based(16);
      if (end) return finish(TokenKind::kInteger, *end);
      return finish(TokenKind::kInteger, *digits(start, false, [](char d) { return d == '0'; }));
    }
    return finish(TokenKind::kInteger, *digits(start, false, is_digit));
  }

  Result<> quoted() {
    const size_t start = at_;
    const char quote = source_[at_++];
    std::string out;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] != '\\') {
        out += source_[at_++];
        continue;
      }
      ++at_;
      if (at_ < source_.size()) BOLIDE_TRY(escape(out));
    }
    if (at_ >= source_.size()) return fail(start, "this string has no end");
    ++at_;
    push(TokenKind::kString, std::move(out), start);
    return {};
  }

  // At the character behind a backslash.
  Result<> escape(std::string& out) {
    constexpr std::string_view kNames = "abfnrtv\\'\"", kMeans = "\a\b\f\n\r\t\v\\'\"";
    const size_t start = at_;
    const char c = source_[at_++];
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      out += kMeans[known];
      return {};
    }
    if (c == '\n') return {};
    if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++i)
        code = code * 8 + static_cast<uint32_t>(source_[at_++] - '0');
      append_character(out, code);
      return {};
    }
    const int wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (wanted == 0) {
      if (c == 'N') return fail(start, "\\N{...} in a string is not supported: write the character itself");
      out += '\\';
      --at_;  // the character itself follows as ordinary text
      out += source_.substr(at_, character_size(source_, at_));
      at_ += character_size(source_, at_);
      return {};
    }
    const auto read = [&](int size, uint32_t& code) {
      code = 0;
      for (int i = 0; i < size; ++i, ++at_) {
        const int digit = at_ < source_.size() ? hex_digit(source_[at_]) : -1;
        if (digit < 0) return false;
        code = code * 16 + static_cast<uint32_t>(digit);
      }
      return true;
    };
    uint32_t code = 0;
    if (!read(wanted, code)) return fail(start, fmt::format("\\{} needs {} hexadecimal digits", c, wanted));
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return fail(start, "this escape is not a character");
    append_character(out, code);
    return {};
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalise_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (source.size() > kSourceBytesMax)
    return error(Code::kInvalid,
                 fmt::format("the template has {} bytes, more than {}", source.size(), kSourceBytesMax));
  return Lexer(source).run();
}

int line_of(std::string_view source, size_t offset) {
  return 1 + static_cast<int>(std::count(source.begin(), source.begin() + static_cast<ptrdiff_t>(offset), '\n'));
}

Error syntax_error(std::string_view source, size_t offset, std::string_view what) {
  offset = std::min(offset, source.size());
  const size_t newline = source.substr(0, offset).rfind('\n');
  const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  const size_t column = 1 + character_count(source.substr(line_start, offset - line_start));
  return error(Code::kInvalid, fmt::format("line {}, column {}: {}", line_of(source, offset), column, what));
}

}  // namespace bolide::jinja
