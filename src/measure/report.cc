#include "measure/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/check.h"
#include "base/json_string.h"

namespace bolide {
namespace {

// "VmHWM:	    5432 kB"
Result<int64_t> status_bytes(std::string_view status, std::string_view field) {
  size_t line = 0;
  while (line < status.size() && !status.substr(line).starts_with(field)) {
    const size_t end = status.find('\n', line);
    line = end == std::string_view::npos ? status.size() : end + 1;
  }
  const size_t digits = status.find_first_of("0123456789", line);
  int64_t kib = 0;
  if (line >= status.size() || digits == std::string_view::npos ||
      std::from_chars(status.data() + digits, status.data() + status.size(), kib).ec != std::errc() || kib < 0 ||
      kib > (int64_t{1} << 50))
    return error(Code::kInvalid, fmt::format("/proc/self/status has no {} line", field));
  return kib * 1024;
}

}  // namespace

Result<ProcessMemory> parse_process_memory(std::string_view status) {
  ProcessMemory memory;
  BOLIDE_TRY(memory.peak_bytes, status_bytes(status, "VmHWM:"));
  BOLIDE_TRY(memory.resident_bytes, status_bytes(status, "VmRSS:"));
  BOLIDE_TRY(memory.anonymous_bytes, status_bytes(status, "RssAnon:"));
  return memory;
}

Result<ProcessMemory> read_process_memory() {
  std::ifstream file("/proc/self/status");
  if (!file) return error(Code::kUnavailable, "/proc/self/status cannot be read, so memory use is unknown");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_process_memory(text.str());
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

void Table::add(std::vector<Cell> row) {
  BOLIDE_CHECK(row.size() == columns_.size(), "{} cells under {} columns", row.size(), columns_.size());
  rows_.push_back(std::move(row));
}

namespace {

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The first `count - 1` characters and an ellipsis, if there are more than `count`.
std::string cut(std::string_view text, size_t count) {
  if (characters(text) <= count) return std::string(text);
  size_t end = 0;
  for (size_t seen = 0; end < text.size() && (seen < count - 1 || (text[end] & 0xc0) == 0x80); ++end)
    if ((text[end] & 0xc0) != 0x80) ++seen;
  return std::string(text.substr(0, end)) + "…";
}

}  // namespace

std::string Table::to_text(size_t width) const {
  const auto cell_text = [this](const Cell& cell, size_t column) {
    if (const auto* text = std::get_if<std::string>(&cell)) return *text;
    const double value = std::get<double>(cell);
    return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, columns_[column].digits);
  };
  const auto title = [this](size_t c) -> const std::string& {
    return columns_[c].title.empty() ? columns_[c].name : columns_[c].title;
  };
  constexpr size_t kBetween = 2;
  std::vector<size_t> widths;
  std::vector<bool> numeric;
  size_t line = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(characters(title(c)));
    numeric.push_back(!rows_.empty());
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], characters(cell_text(row[c], c)));
      if (std::holds_alternative<std::string>(row[c])) numeric[c] = false;
    }
    line += widths[c] + (c > 0 ? kBetween : 0);
  }
  while (width > 0 && line > width) {
    size_t widest = columns_.size();
    for (size_t c = 0; c < columns_.size(); ++c)
      if (!numeric[c] && widths[c] > kTextLeast && (widest == columns_.size() || widths[c] > widths[widest]))
        widest = c;
    if (widest == columns_.size()) break;
    --widths[widest], --line;
  }
  std::string text;
  const auto put = [&](size_t c, std::string_view whole) {
    if (c > 0) text.append(kBetween, ' ');
    const std::string cell = cut(whole, widths[c]);
    const std::string space(widths[c] - characters(cell), ' ');
    if (numeric[c]) text += space;
    text += cell;
    if (!numeric[c] && c + 1 < columns_.size()) text += space;
  };
  for (size_t c = 0; c < columns_.size(); ++c) put(c, title(c));
  text += '\n';
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns_.size(); ++c) put(c, cell_text(row[c], c));
    text += '\n';
  }
  return text;
}

std::string Table::to_json() const {
  std::string json = "[";
  for (const auto& row : rows_) {
    json += json.size() == 1 ? "{" : ",{";
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) json += ',';
      append_json_string(json, columns_[c].name);
      json += ':';
      if (const auto* text = std::get_if<std::string>(&row[c])) {
        append_json_string(json, *text);
      } else if (const double value = std::get<double>(row[c]); std::isfinite(value)) {
        fmt::format_to(std::back_inserter(json), "{}", value);
      } else {
        json += "null";
      }
    }
    json += '}';
  }
  return json + "]";
}

}  // namespace bolide
