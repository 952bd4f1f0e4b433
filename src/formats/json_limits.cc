#include "formats/json_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace bolide {
namespace {

// Records where parsing stopped; builds nothing.
struct ErrorFinder : nlohmann::json_sax<nlohmann::json> {
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& last, const nlohmann::detail::exception&) override {
    end = position;
    token = last;
    return false;
  }
  size_t end = 0;  // bytes read, the one that does not fit among them
  std::string token;
};

}  // namespace

bool nests_deeper_than(std::string_view json, int depth) {
  int open = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++open > depth) return true;
    } else if (c == '}' || c == ']') {
      --open;
    }
  }
  return false;
}

std::string text_position(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const size_t newline = before.rfind('\n');
  const std::string_view line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  const auto is_start = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     std::count_if(line.begin(), line.end(), is_start) + 1);
}

std::string describe_json_error(std::string_view text) {
  ErrorFinder finder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &finder);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "is empty, expected JSON";
  if (finder.end == 0) return "is no valid JSON";
  const std::string where = text_position(text, finder.end - 1);
  if (finder.end > text.size()) return fmt::format("is no valid JSON: it ends at {} before it is complete", where);
  // The token's end says what is wrong; its beginning may be a long text ago.
  const std::string_view token = finder.token;
  return fmt::format("is no valid JSON at {}, near '{}'", where,
                     token.substr(token.size() - std::min<size_t>(token.size(), 40)));
}

}  // namespace bolide
