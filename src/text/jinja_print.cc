#include "text/jinja_print.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

constexpr int kPrintDepthMax = 120;

bool is_printable(uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

void append_quoted(std::string& out, std::string_view text) {
  const bool use_double = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text, at);
    const uint32_t c = character(text, at);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      out += text.substr(at, size);
    } else {
      out += c < 0x100     ? fmt::format("\\x{:02x}", c)
             : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                           : fmt::format("\\U{:08x}", c);
    }
    at += size;
  }
  out += quote;
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text, at);
    const uint32_t c = character(text, at);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000))
          out += fmt::format("\\u{:04x}", c);
        else if (ascii && c > 0xFFFF)
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
        else
          out += text.substr(at, size);
    }
    at += size;
  }
  out += '"';
}

std::string json_real(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return real_text(number);
}

void append_line(std::string& out, const JsonStyle& style, int depth) {
  if (!style.indent) return;
  out += '\n';
  for (int i = 0; i < depth; ++i) out += *style.indent;
}

Result<> append_items(Heap& heap, std::string& out, const std::vector<Value>& items, int depth) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    BOLIDE_TRY(append_repr(heap, out, item, depth + 1));
  }
  return {};
}

Result<> append_sequence(Heap& heap, std::string& out, const List& list, int depth) {
  const std::vector<Value>& items = list.items;
  switch (list.flavour) {
    case Flavour::kGenerator: out += "<generator object>"; return {};
    case Flavour::kRange: {
      const int64_t first = items.empty() ? 0 : items[0].integer;
      const int64_t step = items.size() < 2 ? 1 : items[1].integer - first;
      const int64_t last = items.empty() ? -1 : items.back().integer;
      out += fmt::format("range({}, {}", first, last + (step > 0 ? 1 : -1));
      out += step == 1 ? ")" : fmt::format(", {})", step);
      return {};
    }
    case Flavour::kTuple:
    case Flavour::kGroup:
      out += '(';
      BOLIDE_TRY(append_items(heap, out, items, depth));
      out += items.size() == 1 ? ",)" : ")";
      return {};
    case Flavour::kKeys: out += "dict_keys("; break;
    case Flavour::kValues: out += "dict_values("; break;
    case Flavour::kItems: out += "dict_items("; break;
    case Flavour::kList: break;
  }
  out += '[';
  BOLIDE_TRY(append_items(heap, out, items, depth));
  out += list.flavour == Flavour::kList ? "]" : "])";
  return {};
}

}  // namespace

std::string real_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t digits_of_exponent = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + digits_of_exponent, text.data() + text.size(), exponent);
  std::string out, digits;
  for (const char c : text.substr(0, e)) {
    if (c == '-') out.push_back('-');
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  const auto zeros = [](int count) { return static_cast<size_t>(std::max(count, 0)); };
  const size_t whole =
      static_cast<size_t>(exponent < -4 || exponent >= 16 ? 1 : exponent + 1);  // digits before the point
  if (exponent < 0 && exponent >= -4) return out.append("0.").append(zeros(-exponent - 1), '0').append(digits);
  out.append(digits, 0, whole);
  if (exponent < 16 && exponent >= 0) out.append(zeros(exponent + 1 - static_cast<int>(digits.size())), '0');
  const bool scientific = exponent < -4 || exponent >= 16;
  if (digits.size() > whole)
    out.append(1, '.').append(digits, whole);
  else if (!scientific)
    out.append(".0");
  if (scientific) out.append(fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent)));
  return out;
}

Result<> append_text(Heap& heap, std::string& out, const Value& value) {
  if (value.is_string()) {
    BOLIDE_TRY(heap.room(out.size() + value.string().size()));
    BOLIDE_TRY(heap.step(value.string().size()));
    out += value.string();
    return {};
  }
  if (value.is(Kind::kUndefined)) return {};
  return append_repr(heap, out, value);
}

Result<Value> to_text(Heap& heap, const Value& value) {
  if (value.is_string()) return value;
  std::string out;
  BOLIDE_TRY(append_text(heap, out, value));
  return heap.string(std::move(out));
}

Result<> append_repr(Heap& heap, std::string& out, const Value& value, int depth) {
  BOLIDE_TRY(heap.step());
  BOLIDE_TRY(heap.room(out.size()));
  if (depth > kPrintDepthMax) return template_error("a value is nested too deeply to be printed");
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined: out += "Undefined"; break;
    case Kind::kNone: out += "None"; break;
    case Kind::kBool: out += value.boolean ? "True" : "False"; break;
    case Kind::kInt: out += std::to_string(value.integer); break;
    case Kind::kFloat: out += real_text(value.real); break;
    case Kind::kString:
      BOLIDE_TRY(heap.room(out.size() + 4 * value.string().size()));
      BOLIDE_TRY(heap.step(value.string().size() * 4));
      append_quoted(out, value.string());
      break;
    case Kind::kList: return append_sequence(heap, out, *value.list, depth);
    case Kind::kNamespace: out += "<Namespace "; [[fallthrough]];
    case Kind::kDict: {
      out += '{';
      bool first = true;
      for (const Dict::Entry& entry : value.dict->entries) {
        if (!first) out += ", ";
        first = false;
        BOLIDE_TRY(append_repr(heap, out, entry.key, depth + 1));
        out += ": ";
        BOLIDE_TRY(append_repr(heap, out, entry.value, depth + 1));
      }
      out += value.is(Kind::kDict) ? "}" : "}>";
      break;
    }
    default: out += fmt::format("<{}>", type_name(value));
  }
  return {};
}

Result<> append_json(Heap& heap, std::string& out, const Value& value, const JsonStyle& style, int depth) {
  BOLIDE_TRY(heap.step());
  BOLIDE_TRY(heap.room(out.size()));
  if (depth > kPrintDepthMax) return template_error("a value is nested too deeply for tojson");
  switch (value.kind) {
    case Kind::kNone: out += "null"; return {};
    case Kind::kBool: out += value.boolean ? "true" : "false"; return {};
    case Kind::kInt: out += std::to_string(value.integer); return {};
    case Kind::kFloat: out += json_real(value.real); return {};
    case Kind::kString:
      BOLIDE_TRY(heap.room(out.size() + 6 * value.string().size()));
      BOLIDE_TRY(heap.step(value.string().size() * 4));
      append_json_string(out, value.string(), style.ascii);
      return {};
    case Kind::kDict: {
      std::vector<const Dict::Entry*> entries;
      for (const Dict::Entry& entry : value.dict->entries) entries.push_back(&entry);
      if (style.sort_keys) {
        const auto text_key = [](const Dict::Entry* e) { return e->key.is_string(); };
        if (!std::all_of(entries.begin(), entries.end(), text_key))
          return template_error("tojson can sort only keys that are strings");
        std::sort(entries.begin(), entries.end(),
                  [](const auto* a, const auto* b) { return a->key.string() < b->key.string(); });
      }
      if (entries.empty()) {
        out += "{}";
        return {};
      }
      out += '{';
      for (const Dict::Entry* entry : entries) {
        if (entry != entries.front()) out += style.item_separator;
        append_line(out, style, depth + 1);
        std::string key;
        if (entry->key.is_string()) {
          key = entry->key.string();
        } else {
          BOLIDE_TRY(append_json(heap, key, entry->key, style, depth + 1));
        }
        append_json_string(out, key, style.ascii);
        out += style.key_separator;
        BOLIDE_TRY(append_json(heap, out, entry->value, style, depth + 1));
      }
      append_line(out, style, depth);
      out += '}';
      return {};
    }
    case Kind::kList:
      if (value.list->flavour > Flavour::kGroup) break;
      if (value.list->items.empty()) {
        out += "[]";
        return {};
      }
      out += '[';
      for (const Value& item : value.list->items) {
        if (&item != value.list->items.data()) out += style.item_separator;
        append_line(out, style, depth + 1);
        BOLIDE_TRY(append_json(heap, out, item, style, depth + 1));
      }
      append_line(out, style, depth);
      out += ']';
      return {};
    default: break;
  }
  return template_error(fmt::format("tojson cannot write an object of type {}", type_name(value)));
}

}  // namespace bolide::jinja
