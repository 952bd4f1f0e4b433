// Writing JSON strings, for the few places below the formats folder that emit JSON lines.
#pragma once

#include <string>
#include <string_view>

namespace bolide {

// Appends `text` in quotes, escaped; bytes that are not UTF-8 become U+FFFD, so the output is always valid JSON.
void append_json_string(std::string& out, std::string_view text);

inline std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace bolide
