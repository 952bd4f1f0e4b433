#include "server/batch/json_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "formats/json_limits.h"

namespace bolide::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// What follows works on valid JSON; on other text it would stop at its end.

size_t skip_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

// Behind the closing quotation mark of the string that opens at `at`.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

size_t value_end(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (depth == 0 && (c == ',' || c == '}' || c == ']' || kSpace.find(c) != std::string_view::npos)) return at;
    if (c == '"') {
      at = string_end(text, at);
    } else {
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at;
    }
    if (depth == 0 && (c == '"' || c == '}' || c == ']')) return at;
  }
  return at;
}

std::string decoded(std::string_view token) {
  const nlohmann::json json = nlohmann::json::parse(token, nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? json.get<std::string>() : std::string();
}

}  // namespace

Result<std::vector<JsonField>> json_fields(std::string_view text) {
  if (utf8_invalid_at(text) != kUtf8Valid) return error(Code::kInvalid, "is not UTF-8");
  if (nests_deeper_than(text, kJsonNestingMax))
    return error(Code::kInvalid, fmt::format("nests deeper than {}", kJsonNestingMax));
  if (!nlohmann::json::accept(text)) return error(Code::kInvalid, describe_json_error(text));
  size_t at = skip_space(text, 0);
  if (at >= text.size() || text[at] != '{') return error(Code::kInvalid, "must be a JSON object");
  std::vector<JsonField> fields;
  at = skip_space(text, at + 1);
  while (at < text.size() && text[at] != '}') {
    const size_t name_end = string_end(text, at);
    const size_t begin = skip_space(text, skip_space(text, name_end) + 1);
    const size_t end = value_end(text, begin);
    fields.push_back({decoded(text.substr(at, name_end - at)), text.substr(begin, end - begin)});
    at = skip_space(text, end);
    if (at < text.size() && text[at] == ',') at = skip_space(text, at + 1);
  }
  return fields;
}

std::string_view find_field(const std::vector<JsonField>& fields, std::string_view name) {
  for (auto field = fields.rbegin(); field != fields.rend(); ++field)
    if (field->name == name) return field->value;
  return {};
}

std::optional<std::string> json_text(std::string_view value) {
  if (!value.starts_with('"')) return std::nullopt;
  return decoded(value);
}

std::optional<int64_t> json_integer(std::string_view value) {
  int64_t number = 0;
  const auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (fault != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return number;
}

}  // namespace bolide::server
