// Oniguruma's Ruby syntax into PCRE2's, where the two differ:
//   \s \S \w \W   Unicode White_Space and Word, which PCRE2's \s (it has U+180E) and \w (letters, digits, _) are not
//   \h \H         hexadecimal digits, not horizontal space
//   \uHHHH        a character
//   (?m)          the dot matches newlines too, PCRE2's (?s)
//   X{1,3}+       one or more of X{1,3}, not possessive
//   [a&&b] [a[b]] intersection and union of classes
//   \p{Letter}    long names of general categories
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "text/regex.h"

namespace bolide {
namespace {

constexpr std::string_view kSpace = "\\t-\\r\\x{85}\\p{Z}";
// Oniguruma's \w takes the Latin-1 digits and fractions too, but not inside a class, nor does [:word:].
#define BOLIDE_WORD                                                                                               \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{" \
  "1F189}"
constexpr std::string_view kWord = BOLIDE_WORD;
constexpr std::string_view kBareWord = BOLIDE_WORD "\\xB2\\xB3\\xB9\\xBC-\\xBE";
#undef BOLIDE_WORD
constexpr std::string_view kHex = "0-9a-fA-F";
constexpr int kClassDepthMax = 16;

constexpr std::array<std::pair<std::string_view, std::string_view>, 46> kLongNames{{
    {"letter", "L"},
    {"cased_letter", "L&"},
    {"uppercase_letter", "Lu"},
    {"lowercase_letter", "Ll"},
    {"titlecase_letter", "Lt"},
    {"modifier_letter", "Lm"},
    {"other_letter", "Lo"},
    {"mark", "M"},
    {"nonspacing_mark", "Mn"},
    {"spacing_mark", "Mc"},
    {"enclosing_mark", "Me"},
    {"number", "N"},
    {"decimal_number", "Nd"},
    {"letter_number", "Nl"},
    {"other_number", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connector_punctuation", "Pc"},
    {"dash_punctuation", "Pd"},
    {"open_punctuation", "Ps"},
    {"close_punctuation", "Pe"},
    {"initial_punctuation", "Pi"},
    {"final_punctuation", "Pf"},
    {"other_punctuation", "Po"},
    {"symbol", "S"},
    {"math_symbol", "Sm"},
    {"currency_symbol", "Sc"},
    {"modifier_symbol", "Sk"},
    {"other_symbol", "So"},
    {"separator", "Z"},
    {"space_separator", "Zs"},
    {"line_separator", "Zl"},
    {"paragraph_separator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"cntrl", "Cc"},
    {"format", "Cf"},
    {"private_use", "Co"},
    {"unassigned", "Cn"},
    {"surrogate", "Cs"},
    {"digit", "Nd"},
    {"alpha", "Alphabetic"},
    {"upper", "Uppercase"},
    {"lower", "Lowercase"},
    {"space", "White_Space"},
    {"any", "Any"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kPosix{{
    {"alpha", "\\p{Alphabetic}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"digit", "\\p{Nd}"},
    {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"},
    {"space", kSpace},
    {"punct", "\\p{P}\\p{S}"},
    {"blank", "\\t\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"xdigit", kHex},
    {"word", kWord},
}};

// Properties that are no scripts; PCRE2 takes a bare script name for its Script_Extensions, Oniguruma for Script.
constexpr std::array<std::string_view, 12> kNoScripts{
    "alphabetic", "uppercase",  "lowercase",          "white_space",           "any",
    "ascii",      "emoji",      "emoji_presentation", "extended_pictographic", "ideographic",
    "id_start",   "id_continue"};

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (at_ < in_.size()) BOLIDE_TRY(item());
    return std::move(out_);
  }

 private:
  Error unsupported(std::string_view what) const {
    return error(Code::kUnsupported,
                 fmt::format("regular expression \"{}\": {} at byte {} is not supported", in_, what, at_));
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void begin_atom() { atom_ = out_.size(); }

  Result<> item() {
    const char c = peek();
    if (c == '\\') {
      begin_atom();
      return escape();
    }
    if (c == '[') {
      begin_atom();
      BOLIDE_TRY(const std::string atom, char_class(0));
      out_ += atom;
      return {};
    }
    if (c == '(') return open_group();
    if (c == ')') {
      out_ += c;
      ++at_;
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      return {};
    }
    if (c == '{' && interval()) return {};
    if (c != '*' && c != '+' && c != '?' && c != '|' && (static_cast<unsigned char>(c) & 0xC0) != 0x80) begin_atom();
    out_ += c;
    ++at_;
    return {};
  }

  // {n,m}, with Ruby's meaning of a + behind it.
  bool interval() {
    size_t end = at_ + 1;
    while (end < in_.size() && (in_[end] == ',' || (in_[end] >= '0' && in_[end] <= '9'))) ++end;
    if (end >= in_.size() || in_[end] != '}' || end == at_ + 1) return false;
    std::string_view text = in_.substr(at_, end + 1 - at_);
    if (text[1] == ',') {  // {,n} is {0,n}
      out_ += "{0" + std::string(text.substr(1));
    } else {
      out_ += text;
    }
    at_ = end + 1;
    if (peek() == '+') {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
    return true;
  }

  Result<> open_group() {
    groups_.push_back(out_.size());
    if (groups_.size() > 200) return unsupported("so deep a nesting of groups");
    out_ += '(';
    ++at_;
    if (peek() != '?') return {};
    // Options: (?imx-imx) and (?imx-imx:...).
    size_t end = at_ + 1;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == 'x' || in_[end] == '-')) ++end;
    if (end > at_ + 1 && end < in_.size() && (in_[end] == ':' || in_[end] == ')')) {
      for (; at_ < end; ++at_) out_ += peek() == 'm' ? 's' : peek();
    }
    return {};
  }

  // After a backslash, outside a class.
  Result<> escape() {
    const char c = peek(1);
    if (c == 's') return take(2, fmt::format("[{}]", kSpace));
    if (c == 'S') return take(2, fmt::format("[^{}]", kSpace));
    if (c == 'w') return take(2, fmt::format("[{}]", kBareWord));
    if (c == 'W') return take(2, fmt::format("[^{}]", kBareWord));
    if (c == 'h') return take(2, fmt::format("[{}]", kHex));
    if (c == 'H') return take(2, fmt::format("[^{}]", kHex));
    return common_escape();
  }

  Result<> take(size_t count, std::string_view text) {
    out_ += text;
    at_ += count;
    return {};
  }

  // Escapes that are the same inside a class and outside.
  Result<> common_escape() {
    const char c = peek(1);
    if (c == '\0') return unsupported("a backslash at the end");
    if (c == 'p' || c == 'P') return property();
    if (c == 'u') {
      if (at_ + 6 > in_.size()) return unsupported("a short \\u");
      return take(6, fmt::format("\\x{{{}}}", in_.substr(at_ + 2, 4)));
    }
    if (c == 'K' || c == 'C' || c == 'M' || c == 'G' || c == 'y' || c == 'Y' || c == 'E' || c == 'Q')
      return unsupported(fmt::format("\\{}", c));
    if (static_cast<unsigned char>(c) >= 0x80) return take(1, "");  // an escaped character is itself
    return take(2, in_.substr(at_, 2));
  }

  Result<> property() {
    if (peek(2) != '{') return take(2, in_.substr(at_, 2));
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return unsupported("an open \\p{");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    std::string caret;
    if (name.starts_with('^')) {
      caret = "^";
      name.remove_prefix(1);
    }
    std::string lower;
    for (const char c : name)
      lower += c == ' ' || c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    std::string_view out = name;
    bool script = name.size() > 2 && std::find(kNoScripts.begin(), kNoScripts.end(), lower) == kNoScripts.end();
    for (const auto& [from, to] : kLongNames) {
      if (lower != from) continue;
      out = to;
      script = false;
    }
    if (script) caret += "sc:";
    return take(end + 1 - at_, fmt::format("\\{}{{{}{}}}", peek(1), caret, out));
  }

  // Reads a bracketed class and returns the PCRE2 atom for it.
  Result<std::string> char_class(int depth) {
    if (depth > kClassDepthMax) return unsupported("so deep a nesting of classes");
    std::string outer = std::exchange(out_, {});
    BOLIDE_TRY(std::string atom, class_body(depth));
    out_ = std::move(outer);
    return atom;
  }

  Result<std::string> class_body(int depth) {
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<std::string> operands;  // atoms joined by &&
    std::string atoms;                  // further alternatives of the operand being read: (?:[...]|atom|atom)
    const auto finish_operand = [&] {
      std::string atom = out_.empty() ? "" : fmt::format("[{}]", out_);
      if (!atoms.empty())
        atom = atom.empty() ? fmt::format("(?:{})", atoms.substr(1)) : fmt::format("(?:{}{})", atom, atoms);
      operands.push_back(std::move(atom));
      out_.clear();
      atoms.clear();
    };
    for (bool first = true;; first = false) {
      if (at_ >= in_.size()) return unsupported("a class that does not end");
      const char c = peek();
      if (c == ']' && !first) break;
      if (c == ']') {
        BOLIDE_TRY(take(1, "\\]"));
      } else if (c == '[' && peek(1) == ':') {
        const size_t end = in_.find(":]", at_);
        if (end == std::string_view::npos) return unsupported("an open [:");
        const std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
        const auto* it = std::find_if(kPosix.begin(), kPosix.end(), [&](const auto& p) { return p.first == name; });
        if (it == kPosix.end()) return unsupported(fmt::format("[:{}:]", name));
        BOLIDE_TRY(take(end + 2 - at_, it->second));
      } else if (c == '[') {
        BOLIDE_TRY(const std::string nested, char_class(depth + 1));
        atoms += "|" + nested;
      } else if (c == '&' && peek(1) == '&') {
        at_ += 2;
        finish_operand();
      } else if (c == '\\') {
        const char e = peek(1);
        if (e == 's')
          BOLIDE_TRY(take(2, kSpace));
        else if (e == 'w')
          BOLIDE_TRY(take(2, kWord));
        else if (e == 'h')
          BOLIDE_TRY(take(2, kHex));
        else if (e == 'S' || e == 'W' || e == 'H') {
          atoms += fmt::format("|[^{}]", e == 'S' ? kSpace : e == 'W' ? kWord : kHex);
          at_ += 2;
        } else {
          BOLIDE_TRY(common_escape());
        }
      } else {
        BOLIDE_TRY(take(1, in_.substr(at_, 1)));
      }
    }
    ++at_;
    const bool simple = operands.empty() && atoms.empty();
    if (simple) return fmt::format("[{}{}]", negated ? "^" : "", out_);
    finish_operand();
    std::string all;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].empty()) return unsupported("an empty operand of &&");
      all += i + 1 < operands.size() ? fmt::format("(?={})", operands[i]) : operands[i];
    }
    return negated ? fmt::format("(?:(?!{})[\\s\\S])", all) : fmt::format("(?:{})", all);
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last atom starts in out_
  std::vector<size_t> groups_;  // where the open groups start in out_
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace bolide
