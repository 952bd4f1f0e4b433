#include "text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>

namespace bolide::jinja {
namespace {

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_upper_letter(uint32_t c) { return utf8proc_tolower(static_cast<int32_t>(c)) != static_cast<int32_t>(c); }
bool is_cased(uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}
bool is_lower(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_upper(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }

void append_upper(std::string& to, uint32_t c) {
  if (c == 0xDF) {
    to += "SS";  // the one letter of common use whose capital is two
    return;
  }
  append_character(to, static_cast<uint32_t>(utf8proc_toupper(static_cast<int32_t>(c))));
}
void append_lower(std::string& to, uint32_t c) {
  append_character(to, static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
}

// Calls f(code point, bytes, whether they are UTF-8) for each character.
template <class F>
void for_each_character(std::string_view text, F f) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text, at);
    const bool valid = size > 1 || static_cast<unsigned char>(text[at]) < 0x80;
    f(character(text, at), text.substr(at, size), valid);
    at += size;
  }
}

size_t previous(std::string_view text, size_t at) {
  // The character that ends before `at`: up to three continuation bytes back, if they belong together.
  for (size_t back = std::min<size_t>(4, at); back > 1; --back)
    if (character_size(text, at - back) == back) return at - back;
  return at - 1;
}

bool in_class(uint32_t c, CharacterClass which) {
  const auto kind = category(c);
  const bool letter = kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
                      kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
  // Superscripts and circled numbers are digits but not decimal digits.
  const bool digit = kind == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
                     (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
  const bool numeric = digit || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
  switch (which) {
    case CharacterClass::kDigit: return digit;
    case CharacterClass::kDecimal: return kind == UTF8PROC_CATEGORY_ND;
    case CharacterClass::kNumeric: return numeric;
    case CharacterClass::kAlpha: return letter;
    case CharacterClass::kAlnum: return letter || numeric;
    case CharacterClass::kSpace: return is_space(c);
    default: return c < 0x80;
  }
}

}  // namespace

size_t character_size(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  size_t size = 1;
  if (lead >= 0xC2 && lead < 0xE0) size = 2;
  if (lead >= 0xE0 && lead < 0xF0) size = 3;
  if (lead >= 0xF0 && lead < 0xF5) size = 4;
  if (size > text.size() - at) return 1;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 1;
  if (lead == 0xE0 && byte(1) < 0xA0) return 1;
  if (lead == 0xF0 && byte(1) < 0x90) return 1;
  if (lead == 0xF4 && byte(1) > 0x8F) return 1;
  return size;
}

uint32_t character(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (character_size(text, at)) {
    case 2: return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3: return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    case 4: return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    default: return byte(0) < 0x80 ? byte(0) : 0xFFFD;
  }
}

size_t character_count(std::string_view text) {
  size_t total = 0;
  for (size_t at = 0; at < text.size(); at += character_size(text, at)) ++total;
  return total;
}

size_t offset_of(std::string_view text, size_t index) {
  size_t at = 0;
  while (at < text.size() && index > 0) {
    at += character_size(text, at);
    --index;
  }
  return at;
}

void append_character(std::string& to, uint32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += static_cast<char>(0xC0 | c >> 6);
    to += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    to += static_cast<char>(0xE0 | c >> 12);
    to += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    to += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    to += static_cast<char>(0xF0 | c >> 18);
    to += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    to += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    to += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return in_class(c, CharacterClass::kAlnum);
}

bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::string upper(std::string_view text) {
  std::string out;
  for_each_character(
      text, [&](uint32_t c, std::string_view bytes, bool valid) { valid ? append_upper(out, c) : void(out += bytes); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for_each_character(
      text, [&](uint32_t c, std::string_view bytes, bool valid) { valid ? append_lower(out, c) : void(out += bytes); });
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::string out;
  const size_t first = character_size(text, 0);
  if (text.substr(0, first) == "\xC3\x9F")
    out = "Ss";
  else
    out = upper(text.substr(0, first));
  return out + lower(text.substr(first));
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each_character(text, [&](uint32_t c, std::string_view bytes, bool valid) {
    if (!valid)
      out += bytes;
    else if (inside)
      append_lower(out, c);
    else
      append_character(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<int32_t>(c))));
    inside = is_cased(c);
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_character(text, [&](uint32_t c, std::string_view bytes, bool valid) {
    if (!valid)
      out += bytes;
    else if (is_upper_letter(c))
      append_lower(out, c);
    else
      append_upper(out, c);
  });
  return out;
}

bool is_all(std::string_view text, CharacterClass which) {
  if (which == CharacterClass::kAscii ||
      (which != CharacterClass::kLower && which != CharacterClass::kUpper && which != CharacterClass::kTitle)) {
    if (text.empty()) return which == CharacterClass::kAscii;
    bool all = true;
    for_each_character(text, [&](uint32_t c, std::string_view, bool) { all = all && in_class(c, which); });
    return all;
  }
  bool cased = false, all = true, inside = false;
  for_each_character(text, [&](uint32_t c, std::string_view, bool) {
    if (is_cased(c)) {
      cased = true;
      if (which == CharacterClass::kLower) all = all && is_lower(c);
      if (which == CharacterClass::kUpper) all = all && is_upper(c);
      if (which == CharacterClass::kTitle) all = all && (inside ? is_lower(c) : !is_lower(c));
    }
    inside = is_cased(c);
  });
  return cased && all;
}

std::string_view strip(std::string_view text, const std::string_view* characters, bool left, bool right) {
  const auto goes = [&](std::string_view bytes) {
    if (characters == nullptr) return is_space(character(bytes, 0));
    for (size_t at = 0; at < characters->size();) {
      const size_t size = character_size(*characters, at);
      if (characters->substr(at, size) == bytes) return true;
      at += size;
    }
    return false;
  };
  while (left && !text.empty()) {
    const size_t size = character_size(text, 0);
    if (!goes(text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    const size_t from = previous(text, text.size());
    if (!goes(text.substr(from))) break;
    text = text.substr(0, from);
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip(text, nullptr, true, true); }

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t splits_max) {
  std::vector<std::string_view> parts;
  while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, int64_t splits_max) {
  std::vector<std::string_view> parts;
  while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t splits_max) {
  std::vector<std::string_view> parts;
  for (text = strip(text, nullptr, true, false); !text.empty(); text = strip(text, nullptr, true, false)) {
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) >= splits_max) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(character(text, end))) end += character_size(text, end);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_space_right(std::string_view text, int64_t splits_max) {
  std::vector<std::string_view> parts;
  for (text = strip(text, nullptr, false, true); !text.empty(); text = strip(text, nullptr, false, true)) {
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) >= splits_max) {
      parts.push_back(text);
      break;
    }
    size_t from = text.size();
    while (from > 0 && !is_space(character(text, previous(text, from)))) from = previous(text, from);
    parts.push_back(text.substr(from));
    text = text.substr(0, from);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  for (size_t start = 0, at = 0; start < text.size();) {
    while (at < text.size() && !is_line_break(character(text, at))) at += character_size(text, at);
    size_t end = at;
    if (at < text.size()) end += text.substr(at, 2) == "\r\n" ? 2 : character_size(text, at);
    lines.push_back(text.substr(start, (keep_ends ? end : at) - start));
    start = at = end;
  }
  return lines;
}

size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return character_count(text) + 1;
  size_t total = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++total;
  return total;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t times) {
  std::string out;
  if (from.empty()) {
    // Between all characters, and at both ends.
    size_t at = 0;
    for (; times != 0; --times) {
      out += to;
      if (at >= text.size()) break;
      const size_t size = character_size(text, at);
      out += text.substr(at, size);
      at += size;
    }
    return out.append(text.substr(at));
  }
  size_t at = 0;
  for (; times != 0; --times) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

}  // namespace bolide::jinja
