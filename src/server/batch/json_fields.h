// The fields of a JSON object as pieces of its text: no document is made of what only passes through.
//
// Thread rules: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace bolide::server {

struct JsonField {
  std::string name;
  std::string_view value;  // JSON text, part of the object's
};

// Errors, kInvalid: no JSON, no object, not UTF-8, nested deeper than kJsonNestingMax. The whole text is checked.
Result<std::vector<JsonField>> json_fields(std::string_view text);

// Empty: there is none. Of several of one name the last, as in a document.
std::string_view find_field(const std::vector<JsonField>& fields, std::string_view name);

// What a field's value says; null: it is no string, or no whole number.
std::optional<std::string> json_text(std::string_view value);
std::optional<int64_t> json_integer(std::string_view value);

}  // namespace bolide::server
