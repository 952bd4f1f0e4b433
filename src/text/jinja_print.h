// Values as text: Python's str and repr, and JSON as json.dumps writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace bolide::jinja {

std::string real_text(double number);  // Python's repr of a float: the shortest digits that give it back

// Errors: too large, too deep.
Result<> append_text(Heap& heap, std::string& out, const Value& value);                 // str(value)
Result<> append_repr(Heap& heap, std::string& out, const Value& value, int depth = 0);  // repr(value)
Result<Value> to_text(Heap& heap, const Value& value);                                  // str(value), a kString

struct JsonStyle {
  bool ascii = false;  // escape everything else
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; absent: all on one line
  std::string item_separator = ", ", key_separator = ": ";
};
// Errors: a value JSON has no form for (undefined, a macro); too large, too deep.
Result<> append_json(Heap& heap, std::string& out, const Value& value, const JsonStyle& style, int depth = 0);

}  // namespace bolide::jinja
