// Methods of str.
#include <fmt/core.h>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

using R = Result<Value>;

// Text to text, without arguments.
template <std::string (*change)(std::string_view)>
R changed(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this method of str"));
  BOLIDE_TRY(in.heap().step(self.string().size() * 8));
  return in.heap().string(change(self.string()));
}

template <CharacterClass which>
R is_class(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this method of str"));
  BOLIDE_TRY(in.heap().step(self.string().size() * 4));
  return Value::boolean_of(is_all(self.string(), which));
}

template <bool left, bool right>
R stripped(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "strip", {"chars"}, 0));
  BOLIDE_TRY(in.heap().step(self.string().size()));
  if (a[0].is(Kind::kMissing) || a[0].is(Kind::kNone))
    return in.heap().string(std::string(strip(self.string(), nullptr, left, right)));
  BOLIDE_TRY(const std::string_view characters, string_argument(a[0], "the argument of strip"));
  BOLIDE_TRY(in.heap().step(self.string().size() * std::min<size_t>(characters.size(), 1 << 20)));
  return in.heap().string(std::string(strip(self.string(), &characters, left, right)));
}

R strings(Heap& heap, const std::vector<std::string_view>& parts, Flavour flavour = Flavour::kList) {
  BOLIDE_TRY(heap.room(parts.size() * (sizeof(Value) + sizeof(Text))));
  BOLIDE_TRY(heap.step(parts.size() * 64));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(heap.string(std::string(part)));
  return heap.list(std::move(items), flavour);
}

template <bool from_right>
R split_method(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "split", {"sep", "maxsplit"}, 0));
  BOLIDE_TRY(const int64_t most, integer_argument(a[1], "maxsplit", -1));
  BOLIDE_TRY(in.heap().step(self.string().size() * kSearchCost));
  BOLIDE_TRY(in.heap().room(self.string().size()));
  if (a[0].is(Kind::kMissing) || a[0].is(Kind::kNone))
    return strings(in.heap(), from_right ? split_space_right(self.string(), most) : split_space(self.string(), most));
  BOLIDE_TRY(const std::string_view separator, string_argument(a[0], "the separator of split"));
  if (separator.empty()) return template_error("the separator of split is empty");
  return strings(in.heap(),
                 from_right ? split_right(self.string(), separator, most) : split(self.string(), separator, most));
}

R splitlines(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "splitlines", {"keepends"}, 0));
  BOLIDE_TRY(in.heap().step(self.string().size() * 4));
  return strings(in.heap(), split_lines(self.string(), flag_argument(a[0], false)));
}

template <bool from_right>
R partition(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "partition", {"sep"}, 1));
  BOLIDE_TRY(const std::string_view separator, string_argument(a[0], "the separator of partition"));
  if (separator.empty()) return template_error("the separator of partition is empty");
  BOLIDE_TRY(in.heap().step(self.string().size() * kSearchCost));
  const std::string_view text = self.string();
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at != std::string_view::npos)
    return strings(in.heap(), {text.substr(0, at), separator, text.substr(at + separator.size())}, Flavour::kTuple);
  if (from_right) return strings(in.heap(), {"", "", text}, Flavour::kTuple);
  return strings(in.heap(), {text, "", ""}, Flavour::kTuple);
}

// The part of the text that optional `start` and `end` arguments select, and its offset in bytes. A start behind the
// end of the text selects nothing, not even the empty text.
struct Range {
  std::string_view text;
  size_t offset = 0;
  bool valid = true;
};
Result<Range> range_of(Heap& heap, const Value& self, const Value& start, const Value& end) {
  const std::string_view text = self.string();
  BOLIDE_TRY(heap.step(text.size() * kSearchCost));
  if (start.is(Kind::kMissing) && end.is(Kind::kMissing)) return Range{text, 0, true};
  const auto size = static_cast<int64_t>(character_count(text));
  BOLIDE_TRY(int64_t first, integer_argument(start, "start", 0));
  BOLIDE_TRY(int64_t last, integer_argument(end, "end", size));
  const auto clamp = [size](int64_t at) { return std::max<int64_t>(at < 0 ? at + size : at, 0); };
  first = clamp(first);
  last = std::min(clamp(last), size);
  if (first > last) return Range{{}, 0, false};
  const size_t from = offset_of(text, static_cast<size_t>(first)), to = offset_of(text, static_cast<size_t>(last));
  return Range{text.substr(from, to - from), from, true};
}

template <bool at_end>
R starts_or_ends(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, at_end ? "endswith" : "startswith", {"prefix", "start", "end"}, 1));
  BOLIDE_TRY(const Range range, range_of(in.heap(), self, a[1], a[2]));
  const auto fits = [&](std::string_view part) {
    return range.valid && (at_end ? range.text.ends_with(part) : range.text.starts_with(part));
  };
  if (a[0].is_string()) return Value::boolean_of(fits(a[0].string()));
  if (!a[0].is(Kind::kList) || a[0].list->flavour != Flavour::kTuple)
    return template_error("startswith and endswith need a string or a tuple of strings");
  bool any = false;
  for (const Value& part : a[0].list->items) {
    BOLIDE_TRY(const std::string_view text, string_argument(part, "each prefix"));
    any = any || fits(text);
  }
  return Value::boolean_of(any);
}

template <bool from_right, bool must>
R find_method_of(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "find", {"sub", "start", "end"}, 1));
  BOLIDE_TRY(const std::string_view part, string_argument(a[0], "the argument of find"));
  BOLIDE_TRY(const Range range, range_of(in.heap(), self, a[1], a[2]));
  size_t at = std::string_view::npos;
  if (range.valid) at = from_right ? range.text.rfind(part) : range.text.find(part);
  if (at != std::string_view::npos)
    return Value::integer_of(static_cast<int64_t>(character_count(self.string().substr(0, range.offset + at))));
  if (must) return template_error("substring not found");
  return Value::integer_of(-1);
}

R count_method(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "count", {"sub", "start", "end"}, 1));
  BOLIDE_TRY(const std::string_view part, string_argument(a[0], "the argument of count"));
  BOLIDE_TRY(const Range range, range_of(in.heap(), self, a[1], a[2]));
  return Value::integer_of(range.valid ? static_cast<int64_t>(count(range.text, part)) : 0);
}

R replace_method(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "replace", {"old", "new", "count"}, 2));
  BOLIDE_TRY(const std::string_view from, string_argument(a[0], "the first argument of replace"));
  BOLIDE_TRY(const std::string_view to, string_argument(a[1], "the second argument of replace"));
  BOLIDE_TRY(const int64_t times, integer_argument(a[2], "count", -1));
  return replaced(in.heap(), self, from, to, times);
}

R join_method(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "join", {"iterable"}, 1));
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), a[0]));
  std::string out;
  for (const Value& item : items) {
    BOLIDE_TRY(const std::string_view text, string_argument(item, "each item of join"));
    BOLIDE_TRY(in.heap().step(text.size() + self.string().size()));
    BOLIDE_TRY(in.heap().room(out.size() + text.size() + self.string().size()));
    if (&item != items.data()) out += self.string();
    out += text;
  }
  return in.heap().string(std::move(out));
}

R format_method(Interpreter& in, const Value& self, Args& args) { return brace_format(in.heap(), self, args); }

template <bool suffix>
R remove_end(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "removeprefix", {"prefix"}, 1));
  BOLIDE_TRY(const std::string_view part, string_argument(a[0], "the argument of removeprefix"));
  BOLIDE_TRY(in.heap().step(self.string().size()));
  std::string_view text = self.string();
  if (suffix ? text.ends_with(part) : text.starts_with(part)) {
    if (suffix)
      text.remove_suffix(part.size());
    else
      text.remove_prefix(part.size());
  }
  return in.heap().string(std::string(text));
}

// -1: text to the left, 0: centred, 1: to the right.
template <int side>
R justify(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "ljust", {"width", "fillchar"}, 1));
  BOLIDE_TRY(const int64_t width, integer_argument(a[0], "width"));
  std::string_view fill = " ";
  if (!a[1].is(Kind::kMissing)) {
    BOLIDE_TRY(fill, string_argument(a[1], "fillchar"));
    if (character_count(fill) != 1) return template_error("the fill character must be one character");
  }
  const auto size = static_cast<int64_t>(character_count(self.string()));
  const int64_t missing = std::max<int64_t>(width - size, 0);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(missing), fill.size(), &bytes)) bytes = UINT64_MAX / 2;
  BOLIDE_TRY(in.heap().room(bytes + self.string().size()));
  BOLIDE_TRY(in.heap().step(bytes + self.string().size()));
  int64_t left = side < 0 ? 0 : missing;
  if (side == 0) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.string();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return in.heap().string(std::move(out));
}

R zfill(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "zfill", {"width"}, 1));
  BOLIDE_TRY(const int64_t width, integer_argument(a[0], "width"));
  const auto size = static_cast<int64_t>(character_count(self.string()));
  const auto missing = static_cast<uint64_t>(std::max<int64_t>(width - size, 0));
  BOLIDE_TRY(in.heap().room(missing + self.string().size()));
  BOLIDE_TRY(in.heap().step(missing + self.string().size()));
  std::string out(self.string());
  const bool sign = out.starts_with('+') || out.starts_with('-');
  out.insert(sign ? 1 : 0, missing, '0');
  return in.heap().string(std::move(out));
}

constexpr Named<BuiltIn> kStringMethods[] = {
    {"split", split_method<false>},
    {"strip", stripped<true, true>},
    {"lstrip", stripped<true, false>},
    {"rstrip", stripped<false, true>},
    {"startswith", starts_or_ends<false>},
    {"endswith", starts_or_ends<true>},
    {"replace", replace_method},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"title", changed<title>},
    {"capitalize", changed<capitalize>},
    {"swapcase", changed<swap_case>},
    {"casefold", changed<lower>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"join", join_method},
    {"format", format_method},
    {"count", count_method},
    {"find", find_method_of<false, false>},
    {"rfind", find_method_of<true, false>},
    {"index", find_method_of<false, true>},
    {"rindex", find_method_of<true, true>},
    {"removeprefix", remove_end<false>},
    {"removesuffix", remove_end<true>},
    {"ljust", justify<-1>},
    {"center", justify<0>},
    {"rjust", justify<1>},
    {"zfill", zfill},
    {"isdigit", is_class<CharacterClass::kDigit>},
    {"isdecimal", is_class<CharacterClass::kDecimal>},
    {"isnumeric", is_class<CharacterClass::kNumeric>},
    {"isalpha", is_class<CharacterClass::kAlpha>},
    {"isalnum", is_class<CharacterClass::kAlnum>},
    {"isspace", is_class<CharacterClass::kSpace>},
    {"islower", is_class<CharacterClass::kLower>},
    {"isupper", is_class<CharacterClass::kUpper>},
    {"istitle", is_class<CharacterClass::kTitle>},
    {"isascii", is_class<CharacterClass::kAscii>},
};

}  // namespace

BuiltIn find_string_method(std::string_view name) {
  for (const auto& entry : kStringMethods)
    if (entry.name == name) return entry.function;
  return nullptr;
}

Result<Value> replaced(Heap& heap, const Value& text, std::string_view from, std::string_view to, int64_t times) {
  BOLIDE_TRY(heap.step(text.string().size() * kSearchCost));
  uint64_t found = count(text.string(), from);
  if (times >= 0) found = std::min(found, static_cast<uint64_t>(times));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(found, to.size(), &bytes)) bytes = UINT64_MAX / 2;
  BOLIDE_TRY(heap.room(bytes + text.string().size()));
  BOLIDE_TRY(heap.step(bytes + text.string().size()));
  return heap.string(replace(text.string(), from, to, times));
}

}  // namespace bolide::jinja
