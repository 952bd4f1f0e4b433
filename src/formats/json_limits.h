// Limits on JSON before it becomes a document: copying, printing and destroying a nlohmann document recurse.
#pragma once

#include <string>
#include <string_view>

namespace bolide {

inline constexpr int kJsonNestingMax = 64;

// True if brackets and braces outside strings nest deeper than `depth`. Works on text that is no valid JSON as well.
bool nests_deeper_than(std::string_view json, int depth);

// "line 3, column 14" of a byte of a text; columns are characters of UTF-8.
std::string text_position(std::string_view text, size_t byte);

// Of a text that does not parse: "is no valid JSON at line 3, column 14, near '}'".
std::string describe_json_error(std::string_view text);

}  // namespace bolide
