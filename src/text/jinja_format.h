// Numbers and text in a given width, as Python's format specifications have it; shared by % and str.format.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace bolide::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  char group = '\0';  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

Result<FormatSpec> parse_format_spec(std::string_view text);
// Errors: a type that does not fit the value, a width that is too large.
Result<std::string> format_value(Heap& heap, const Value& value, const FormatSpec& spec);

}  // namespace bolide::jinja
