// UTF-8: checking, decoding one character, encoding one character, and lossy repair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bolide {

inline constexpr size_t kUtf8Valid = static_cast<size_t>(-1);

// The offset of the first byte that does not belong to well-formed UTF-8 (surrogates and overlong forms are not), or
// kUtf8Valid.
size_t utf8_invalid_at(std::string_view text);

struct Utf8Char {
  char32_t value;
  uint32_t size;  // in bytes, 1 to 4
};

// The character that starts at `at`. The text must be valid and `at` on a character's first byte.
inline Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

void append_utf8(std::string& out, char32_t value);

// Appends `bytes` with every ill-formed part (its longest prefix of a well-formed character, else one byte) replaced
// by U+FFFD. Returns how many bytes were used: all of them when `final`, otherwise all but a last character that may
// still be completed by bytes to come (at most 3).
size_t append_utf8_lossy(std::string& out, std::string_view bytes, bool final);

// Names and texts of files, for a terminal: control characters and those that turn the direction of writing become
// \n, \t or \u{1b}, ill-formed parts U+FFFD, so that no file's contents can move the cursor or forge a line. With
// `keep_lines`, newlines and tabs stay.
std::string printable(std::string_view text, bool keep_lines = false);

}  // namespace bolide
