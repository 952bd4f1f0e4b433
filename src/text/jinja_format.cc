#include "text/jinja_format.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>

#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

constexpr int64_t kWidthMax = 1 << 20;
constexpr int64_t kPrecisionMax = 400;  // of numbers; a double has no more than about 1100 digits in all

bool read_number(std::string_view text, size_t& at, int64_t& number) {
  bool any = false;
  number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    any = true;
    number = std::min<int64_t>(number * 10 + (text[at] - '0'), kWidthMax + 1);
  }
  return any;
}

std::string print_real(double number, char type, int64_t precision, bool alternate) {
  if (!std::isfinite(number)) {
    const bool capital = type == 'F' || type == 'E' || type == 'G';
    return std::isnan(number) ? (capital ? "NAN" : "nan") : (capital ? "INF" : "inf");
  }
  const char pattern[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  char buffer[1024];
  const int size = std::snprintf(buffer, sizeof(buffer), pattern, static_cast<int>(precision), number);
  return std::string(buffer, static_cast<size_t>(std::min<int>(size, sizeof(buffer) - 1)));
}

void group_digits(std::string& digits, char separator) {
  size_t end = 0;
  while (end < digits.size() && digits[end] >= '0' && digits[end] <= '9') ++end;
  for (size_t at = end; at > 3;) {
    at -= 3;
    digits.insert(at, 1, separator);
  }
}

// The digits of a number without its sign.
Result<std::string> digits_of(const Value& value, const FormatSpec& spec) {
  char type = spec.type;
  if (type == '\0' || type == 'n') type = value.is(Kind::kFloat) ? (spec.precision >= 0 ? 'g' : 'r') : 'd';
  if (spec.precision > kPrecisionMax) return template_error("the precision of a number's format is too large");
  const std::string_view kInteger = "dboxXc";
  if (kInteger.find(type) != std::string_view::npos) {
    if (!value.is_integral()) return template_error(fmt::format("the format '{}' needs an integer", type));
    const int64_t number = value.as_integer();
    const uint64_t size = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    switch (type) {
      case 'b': return fmt::format("{}{:b}", spec.alternate ? "0b" : "", size);
      case 'o': return fmt::format("{}{:o}", spec.alternate ? "0o" : "", size);
      case 'x': return fmt::format("{}{:x}", spec.alternate ? "0x" : "", size);
      case 'X': return fmt::format("{}{:X}", spec.alternate ? "0X" : "", size);
      case 'c': {
        if (number < 0 || number > 0x10FFFF) return template_error("the format 'c' needs a character's number");
        std::string out;
        append_character(out, static_cast<uint32_t>(number));
        return out;
      }
      default: return std::to_string(size);
    }
  }
  const double number = std::fabs(value.as_real());
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  switch (type) {
    case 'r': return real_text(number);
    case '%': return print_real(number * 100, 'f', precision, spec.alternate) + "%";
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      std::string text = print_real(number, type, precision, spec.alternate);
      // A float without a type keeps a digit behind the point.
      if (spec.type == '\0' && text.find_first_of(".e") == std::string::npos && std::isfinite(number)) text += ".0";
      return text;
    }
    default: return template_error(fmt::format("unknown format '{}' for a number", type));
  }
}

Result<std::string> pad(Heap& heap, std::string sign, std::string body, const FormatSpec& spec, char align) {
  const auto size = static_cast<int64_t>(character_count(sign) + character_count(body));
  if (spec.width <= size) return sign + body;
  if (spec.width > kWidthMax) return template_error("the width of a format is too large");
  BOLIDE_TRY(heap.room(static_cast<uint64_t>(spec.width) * 4));
  BOLIDE_TRY(heap.step(static_cast<uint64_t>(spec.width)));
  const int64_t missing = spec.width - size;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  if (align == '=') out += sign;
  for (int64_t i = 0; i < left; ++i) out += spec.fill;
  if (align != '=') out += sign;
  out += body;
  for (int64_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

Result<int64_t> integer_of_format(const Value& value) {
  if (value.is_integral()) return value.as_integer();
  return template_error("'*' in a format needs an integer");
}

}  // namespace

Result<FormatSpec> parse_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t first = character_size(text, 0);
    if (first < text.size() && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') {
    spec.alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    spec.zero = true;
    ++at;
  }
  read_number(text, at, spec.width);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.group = text[at++];
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!read_number(text, at, spec.precision)) return template_error("a format has a point without a precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return template_error(fmt::format("invalid format '{}'", text));
  return spec;
}

Result<std::string> format_value(Heap& heap, const Value& value, const FormatSpec& spec) {
  if (value.is_number() && !(value.is(Kind::kBool) && spec.type == '\0')) {
    BOLIDE_TRY(std::string digits, digits_of(value, spec));
    const bool negative =
        value.is(Kind::kFloat) ? std::signbit(value.real) && !std::isnan(value.real) : value.as_integer() < 0;
    if (spec.group != '\0') group_digits(digits, spec.group);
    std::string sign(negative || spec.sign != '-' ? 1 : 0, negative ? '-' : spec.sign);
    FormatSpec filled = spec;
    char align = spec.align == '\0' ? '>' : spec.align;
    if (spec.zero && spec.align == '\0') {
      filled.fill.assign(1, '0');
      align = '=';
      if (spec.alternate && digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
        sign += digits.substr(0, 2);
        digits.erase(0, 2);
      }
    }
    return pad(heap, std::move(sign), std::move(digits), filled, align);
  }
  if (spec.type != '\0' && spec.type != 's')
    return template_error(fmt::format("the format '{}' needs a number", spec.type));
  if (!value.is_string() && !value.is(Kind::kBool) && !value.is(Kind::kUndefined) &&
      (spec.width > 0 || spec.precision >= 0 || spec.align != '\0'))
    return template_error(fmt::format("'{}' takes no format", type_name(value)));
  if (spec.align == '=') return template_error("the alignment '=' needs a number");
  std::string text;
  BOLIDE_TRY(append_text(heap, text, value));
  if (spec.precision >= 0) text.resize(offset_of(text, static_cast<size_t>(spec.precision)));
  FormatSpec filled = spec;
  if (spec.zero && spec.align == '\0') filled.fill.assign(1, '0');
  return pad(heap, "", std::move(text), filled, spec.align == '\0' ? '<' : spec.align);
}

Result<Value> percent_format(Heap& heap, const Value& format, const Value& value) {
  const std::string_view text = format.string();
  const bool tuple =
      value.is(Kind::kList) && (value.list->flavour == Flavour::kTuple || value.list->flavour == Flavour::kGroup);
  size_t used = 0;
  bool by_name = false;
  const auto next = [&]() -> Result<Value> {
    const size_t count = tuple ? value.list->items.size() : 1;
    if (used >= count) return template_error("not enough values for the format");
    ++used;
    return tuple ? value.list->items[used - 1] : value;
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '%') {
      const size_t end = std::min(text.find('%', at), text.size());
      out += text.substr(at, end - at);
      at = end;
      continue;
    }
    ++at;
    BOLIDE_TRY(heap.step(8));
    Value argument;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string_view::npos) return template_error("a format has '(' without ')'");
      if (!value.is(Kind::kDict)) return template_error("a format with names needs a dict");
      const std::string name(text.substr(at + 1, end - at - 1));
      const Value* found = value.dict->find(std::string_view(name));
      if (found == nullptr) return template_error(fmt::format("the format needs '{}'", name));
      argument = *found;
      by_name = true;
      at = end + 1;
    }
    FormatSpec spec;
    bool left = false;
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '-') left = true;
      if (text[at] == '+') spec.sign = '+';
      if (text[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') spec.zero = true;
    }
    const auto read_size = [&](int64_t& size) -> Result<> {
      if (at < text.size() && text[at] == '*') {
        ++at;
        BOLIDE_TRY(const Value given, next());
        BOLIDE_TRY(size, integer_of_format(given));
        return {};
      }
      read_number(text, at, size);
      return {};
    };
    BOLIDE_TRY(read_size(spec.width));
    if (spec.width < 0) {
      left = true;
      spec.width = -std::max<int64_t>(spec.width, -kWidthMax - 1);
    }
    if (at < text.size() && text[at] == '.') {
      ++at;
      BOLIDE_TRY(read_size(spec.precision));
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    if (at >= text.size()) return template_error("a format ends in '%'");
    const char type = text[at++];
    if (type == '%') {
      out += '%';
      continue;
    }
    if (argument.is(Kind::kMissing)) {
      BOLIDE_TRY(argument, next());
    }
    if (left) spec.zero = false;
    spec.align = left ? '<' : spec.zero ? '\0' : '>';
    spec.type = type;
    if (type == 's' || type == 'r' || type == 'a') {
      std::string shown;
      if (type == 's') {
        BOLIDE_TRY(append_text(heap, shown, argument));
      } else {
        BOLIDE_TRY(append_repr(heap, shown, argument));
      }
      argument = heap.string(std::move(shown));
      spec.type = 's';
      spec.zero = false;
      if (spec.align == '\0') spec.align = '>';
    } else if (type == 'c' && argument.is_string()) {
      if (character_count(argument.string()) != 1) return template_error("the format 'c' needs one character");
      spec.type = 's';
    } else if (type == 'd' || type == 'i' || type == 'u') {
      if (argument.is(Kind::kUndefined)) return undefined_error(argument);
      if (argument.is(Kind::kFloat) && std::fabs(argument.real) < 9.2e18)
        argument = Value::integer_of(static_cast<int64_t>(argument.real));
      if (!argument.is_integral()) return template_error("the format 'd' needs a number");
      spec.type = 'd';
      const int64_t digits = std::exchange(spec.precision, -1);
      if (digits > 0) return template_error("a precision of whole numbers is not supported");
    } else if (std::string_view("oxXeEfFgGc").find(type) == std::string_view::npos) {
      return template_error(fmt::format("unknown format '%{}'", type));
    } else if (!argument.is_number()) {
      if (argument.is(Kind::kUndefined)) return undefined_error(argument);
      return template_error(fmt::format("the format '{}' needs a number", type));
    }
    if (argument.is(Kind::kBool) && spec.type != 's') argument = Value::integer_of(argument.as_integer());
    BOLIDE_TRY(const std::string shown, format_value(heap, argument, spec));
    BOLIDE_TRY(heap.room(out.size() + shown.size()));
    out += shown;
  }
  if (!by_name && !value.is(Kind::kDict) && !(value.is(Kind::kList) && !tuple) &&
      used < (tuple ? value.list->items.size() : 1))
    return template_error("the format does not use all values");
  return heap.string(std::move(out));
}

Result<Value> brace_format(Heap& heap, const Value& format, const Args& args) {
  const std::string_view text = format.string();
  std::string out;
  size_t automatic = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      const size_t end = std::min(text.find_first_of("{}", at), text.size());
      out += text.substr(at, end - at);
      at = end;
      continue;
    }
    BOLIDE_TRY(heap.step(8));
    if (at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    if (c == '}') return template_error("a format has a single '}'");
    const size_t end = text.find('}', at);
    if (end == std::string_view::npos) return template_error("a format has '{' without '}'");
    std::string_view field = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (field.find('{') != std::string_view::npos) return template_error("nested fields of a format are not supported");
    std::string_view spec_text;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (field.size() != mark + 2) return template_error("a format has an invalid conversion");
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    const size_t path = std::min(field.find_first_of(".["), field.size());
    const std::string_view name = field.substr(0, path);
    Value value;
    int64_t number = 0;
    size_t read = 0;
    if (name.empty()) {
      number = static_cast<int64_t>(automatic++);
    } else if (!read_number(name, read, number) || read != name.size()) {
      number = -1;
      for (const auto& [known, given] : args.named)
        if (known->bytes == name) value = given;
    }
    if (number >= 0 && static_cast<size_t>(number) < args.positional.size())
      value = args.positional[static_cast<size_t>(number)];
    if (value.is(Kind::kMissing)) return template_error(fmt::format("the format needs a value for '{}'", name));
    for (std::string_view rest = field.substr(path); !rest.empty();) {
      const bool dot = rest[0] == '.';
      rest.remove_prefix(1);
      const size_t stop = std::min(dot ? rest.find_first_of(".[") : rest.find(']'), rest.size());
      const std::string_view key = rest.substr(0, stop);
      rest.remove_prefix(dot ? stop : std::min(stop + 1, rest.size()));
      int64_t position = 0;
      size_t digits = 0;
      const bool is_index = !dot && read_number(key, digits, position) && digits == key.size();
      const Value index = is_index ? Value::integer_of(position) : heap.string(std::string(key));
      BOLIDE_TRY(value, dot ? attribute(heap, value, index) : item(heap, value, index));
    }
    if (conversion == 'r' || conversion == 's') {
      std::string shown;
      if (conversion == 'r') {
        BOLIDE_TRY(append_repr(heap, shown, value));
      } else {
        BOLIDE_TRY(append_text(heap, shown, value));
      }
      value = heap.string(std::move(shown));
    } else if (conversion != '\0') {
      return template_error("a format has an invalid conversion");
    }
    BOLIDE_TRY(const FormatSpec spec, parse_format_spec(spec_text));
    BOLIDE_TRY(const std::string shown, format_value(heap, value, spec));
    BOLIDE_TRY(heap.room(out.size() + shown.size()));
    out += shown;
  }
  return heap.string(std::move(out));
}

}  // namespace bolide::jinja
