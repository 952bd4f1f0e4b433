// Filters that make text.
#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

using R = Result<Value>;

// Jinja's title differs from str.title: words start only behind spaces, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  bool start = true;
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text, at);
    const std::string_view one = text.substr(at, size);
    const uint32_t c = character(text, at);
    out += start ? upper(one) : lower(one);
    start = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    at += size;
  }
  return out;
}

template <std::string (*change)(std::string_view)>
R changed(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this filter"));
  BOLIDE_TRY(const Value text, to_text(in.heap(), input));
  BOLIDE_TRY(in.heap().step(text.string().size() * 8));
  BOLIDE_TRY(in.heap().room(text.string().size() * 6));
  return in.heap().string(change(text.string()));
}

R as_string(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this filter"));
  return to_text(in.heap(), input);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  return out;
}

R trim(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "trim", {"chars"}, 0));
  BOLIDE_TRY(const Value text, to_text(in.heap(), input));
  if (a[0].is(Kind::kMissing) || a[0].is(Kind::kNone)) {
    BOLIDE_TRY(in.heap().step(text.string().size()));
    return in.heap().string(std::string(strip(text.string())));
  }
  BOLIDE_TRY(const std::string_view characters, string_argument(a[0], "chars"));
  BOLIDE_TRY(in.heap().step(text.string().size() * std::min<size_t>(characters.size(), 1 << 20)));
  return in.heap().string(std::string(strip(text.string(), &characters, true, true)));
}

R replace_filter(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "replace", {"old", "new", "count"}, 2));
  BOLIDE_TRY(const Value text, to_text(in.heap(), input));
  BOLIDE_TRY(const Value from, to_text(in.heap(), a[0]));
  BOLIDE_TRY(const Value to, to_text(in.heap(), a[1]));
  BOLIDE_TRY(const int64_t times, integer_argument(a[2], "count", -1));
  return replaced(in.heap(), text, from.string(), to.string(), times);
}

R indent(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "indent", {"width", "first", "blank"}, 0));
  if (!input.is_string()) {
    if (input.is(Kind::kUndefined)) return undefined_error(input);
    return template_error(fmt::format("indent needs a string, not '{}'", type_name(input)));
  }
  std::string space;
  if (a[0].is_string()) {
    space = a[0].string();
  } else {
    BOLIDE_TRY(const int64_t width, integer_argument(a[0], "width", 4));
    BOLIDE_TRY(in.heap().room(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    space.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = flag_argument(a[1], false), blank = flag_argument(a[2], false);
  BOLIDE_TRY(in.heap().step(input.string().size() * 4));
  // One newline more, so that a newline at the end makes a last, empty line.
  const std::string text = std::string(input.string()) + "\n";
  const std::vector<std::string_view> lines = split_lines(text);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(lines.size(), space.size(), &bytes)) bytes = UINT64_MAX / 2;
  BOLIDE_TRY(in.heap().room(bytes + text.size()));
  BOLIDE_TRY(in.heap().step(bytes));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += space;
    out += lines[i];
  }
  return in.heap().string(std::move(out));
}

R center(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "center", {"width"}, 0));
  BOLIDE_TRY(const Value text, to_text(in.heap(), input));
  Args width;
  width.positional.push_back(a[0].is(Kind::kMissing) ? Value::integer_of(80) : a[0]);
  return find_string_method("center")(in, text, width);
}

R truncate(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "truncate", {"length", "killwords", "end", "leeway"}, 0));
  BOLIDE_TRY(const int64_t length, integer_argument(a[0], "length", 255));
  BOLIDE_TRY(const int64_t leeway, integer_argument(a[3], "leeway", 5));
  std::string_view end = "...";
  if (!a[2].is(Kind::kMissing)) {
    BOLIDE_TRY(end, string_argument(a[2], "end"));
  }
  BOLIDE_TRY(const Value text, to_text(in.heap(), input));
  BOLIDE_TRY(in.heap().step(text.string().size()));
  const auto end_size = static_cast<int64_t>(character_count(end));
  if (length < end_size || leeway < 0) return template_error("truncate: the length is shorter than the end");
  const auto size = static_cast<int64_t>(character_count(text.string()));
  if (size - leeway <= length) return text;
  std::string out(text.string().substr(0, offset_of(text.string(), static_cast<size_t>(length - end_size))));
  if (!flag_argument(a[1], false)) out.resize(std::min(out.rfind(' '), out.size()));
  return in.heap().string(out.append(end));
}

R word_count(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "wordcount"));
  BOLIDE_TRY(const Value text, to_text(in.heap(), input));
  BOLIDE_TRY(in.heap().step(text.string().size()));
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.string().size(); at += character_size(text.string(), at)) {
    const bool word = is_word(character(text.string(), at));
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer_of(words);
}

R format_filter(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(const Value text, to_text(in.heap(), input));
  if (!args.named.empty() && !args.positional.empty())
    return template_error("format takes positional or named values, not both");
  if (args.named.empty())
    return percent_format(in.heap(), text, in.heap().list(std::move(args.positional), Flavour::kTuple));
  Value values = in.heap().dict();
  BOLIDE_TRY(fill_dict(in.heap(), *values.dict, args, "format"));
  return percent_format(in.heap(), text, values);
}

R to_json(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ascii = flag_argument(a[0], false);
  style.sort_keys = flag_argument(a[3], false);
  if (a[1].is_string()) {
    style.indent = a[1].string();
  } else if (!a[1].is(Kind::kMissing) && !a[1].is(Kind::kNone)) {
    BOLIDE_TRY(const int64_t width, integer_argument(a[1], "indent"));
    if (width > 1000) return template_error("tojson: indent is more than 1000");
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator = ",";
  if (!a[2].is(Kind::kMissing) && !a[2].is(Kind::kNone)) {
    BOLIDE_TRY(const std::vector<Value> parts, iterate(in.heap(), a[2]));
    if (parts.size() != 2) return template_error("tojson: separators are two strings");
    BOLIDE_TRY(style.item_separator, string_argument(parts[0], "a separator"));
    BOLIDE_TRY(style.key_separator, string_argument(parts[1], "a separator"));
  }
  std::string out;
  BOLIDE_TRY(append_json(in.heap(), out, input, style));
  return in.heap().string(std::move(out));
}

constexpr Named<Filter> kTextFilters[] = {
    {"trim", trim},
    {"tojson", to_json},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"title", changed<title_words>},
    {"capitalize", changed<capitalize>},
    {"string", as_string},
    {"safe", as_string},
    {"escape", changed<escape_html>},
    {"e", changed<escape_html>},
    {"forceescape", changed<escape_html>},
    {"replace", replace_filter},
    {"indent", indent},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", word_count},
    {"format", format_filter},
};

}  // namespace

std::span<const Named<Filter>> text_filters() { return kTextFilters; }

}  // namespace bolide::jinja
