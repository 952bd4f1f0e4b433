// Operations on UTF-8 text that Python's str has. Characters are code points; bytes that are not UTF-8 count as one
// character each and pass through unchanged. Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bolide::jinja {

// Bytes of the character at `at` (at < text.size()): 1 to 4.
size_t character_size(std::string_view text, size_t at);
// Its code point, 0xFFFD for a byte that is not UTF-8.
uint32_t character(std::string_view text, size_t at);
size_t character_count(std::string_view text);
// Byte offset of the character with this index, text.size() if there are fewer.
size_t offset_of(std::string_view text, size_t index);
void append_character(std::string& to, uint32_t code_point);

bool is_space(uint32_t c);       // str.isspace, and \s of regular expressions
bool is_word(uint32_t c);        // \w
bool is_line_break(uint32_t c);  // what str.splitlines splits at

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title
std::string swap_case(std::string_view text);

enum class CharacterClass : uint8_t {
  kDigit,
  kDecimal,
  kNumeric,
  kAlpha,
  kAlnum,
  kSpace,
  kLower,
  kUpper,
  kTitle,
  kAscii
};
bool is_all(std::string_view text, CharacterClass which);  // str.isdigit and its relatives

// strip with null `characters` takes whitespace.
std::string_view strip(std::string_view text, const std::string_view* characters, bool left, bool right);
std::string_view strip(std::string_view text);

// The most pieces are splits_max + 1; negative: no bound. An empty separator is the caller's to refuse.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t splits_max);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, int64_t splits_max);
std::vector<std::string_view> split_space(std::string_view text, int64_t splits_max);
std::vector<std::string_view> split_space_right(std::string_view text, int64_t splits_max);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

// How often `part` occurs, without overlaps; characters + 1 for an empty part.
size_t count(std::string_view text, std::string_view part);
// At most `times` replacements; negative: all. The caller has checked the size of the result.
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t times);

}  // namespace bolide::jinja
