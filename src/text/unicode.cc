#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace bolide::unicode {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool in(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// GPT-2's table: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up.
struct ByteTable {
  std::array<char32_t, 256> forward{};
  std::array<int16_t, 0x144> back{};
  constexpr ByteTable() {
    for (auto& b : back) b = -1;
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      forward[static_cast<size_t>(byte)] = printable ? static_cast<char32_t>(byte) : next++;
      back[forward[static_cast<size_t>(byte)]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr ByteTable kByteTable;

// utf8proc reorders combining marks by swapping neighbours, which is quadratic on a hostile run; a sort is not.
void reorder(std::vector<utf8proc_int32_t>& chars) {
  const auto combining = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  std::vector<uint64_t> keys;
  size_t i = 0;
  while (i < chars.size()) {
    if (chars[i] < 0x300 || combining(chars[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < chars.size() && combining(chars[end]) != 0) ++end;
    if (end - i > 1) {
      // Class, then place, then the character itself, in one number.
      keys.clear();
      for (size_t k = i; k < end; ++k) {
        keys.push_back(static_cast<uint64_t>(combining(chars[k])) << 56 | (k - i) << 21 |
                       static_cast<uint64_t>(chars[k]));
      }
      std::sort(keys.begin(), keys.end());
      for (size_t k = i; k < end; ++k) chars[k] = static_cast<utf8proc_int32_t>(keys[k - i] & 0x1FFFFF);
    }
    i = end;
  }
}

}  // namespace

bool is_whitespace(char32_t c) {
  return in(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || in(c, 0x2000, 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return in(c, '0', '9');
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return in(c, 0x21, 0x2F) || in(c, 0x3A, 0x40) || in(c, 0x5B, 0x60) || in(c, 0x7B, 0x7E);
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_other(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool is_word(char32_t c) {
  if (c < 0x80) return in(c, '0', '9') || in(c, 'A', 'Z') || in(c, 'a', 'z') || c == '_';
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_SO:  // Other_Alphabetic: circled and squared letters
      return in(c, 0x24B6, 0x24E9) || in(c, 0x1F130, 0x1F149) || in(c, 0x1F150, 0x1F169) || in(c, 0x1F170, 0x1F189);
    default: return c == 0x200C || c == 0x200D;  // joiners
  }
}

bool is_chinese(char32_t c) {
  return in(c, 0x4E00, 0x9FFF) || in(c, 0x3400, 0x4DBF) || in(c, 0x20000, 0x2A6DF) || in(c, 0x2A700, 0x2B73F) ||
         in(c, 0x2B740, 0x2B81F) || in(c, 0x2B920, 0x2CEAF) || in(c, 0xF900, 0xFAFF) || in(c, 0x2F800, 0x2FA1F);
}

void append_lowercase(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(in(c, 'A', 'Z') ? c + 32 : c));
  } else if (c == 0x130) {
    out.append("i\u0307");  // the only character whose lower case is two
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

std::string normal_form(std::string_view text, normalizer::Form form) {
  const bool compatible = form == normalizer::Form::kNfkc || form == normalizer::Form::kNfkd;
  const bool compose = form == normalizer::Form::kNfc || form == normalizer::Form::kNfkc;
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return std::string(text);
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(text.size());
  std::array<utf8proc_int32_t, 32> buffer;  // the longest decomposition has 18 characters
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.size;
    if (c.value < 0x80) {
      chars.push_back(static_cast<utf8proc_int32_t>(c.value));
      continue;
    }
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), buffer.data(), buffer.size(),
                                               options, &boundary);
    BOLIDE_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(buffer.size()), "decomposition of {}", count);
    chars.insert(chars.end(), buffer.begin(), buffer.begin() + count);
  }
  reorder(chars);
  size_t size = chars.size();
  if (compose) {
    size = static_cast<size_t>(
        utf8proc_normalize_utf32(chars.data(), static_cast<utf8proc_ssize_t>(size),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE)));
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < size; ++i) append_utf8(out, static_cast<char32_t>(chars[i]));
  return out;
}

bool grapheme_break(char32_t before, char32_t after, int* state) {
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(after),
                                          state);
}

char32_t byte_to_char(unsigned char byte) { return kByteTable.forward[byte]; }
int char_to_byte(char32_t c) { return c < kByteTable.back.size() ? kByteTable.back[c] : -1; }

}  // namespace bolide::unicode
