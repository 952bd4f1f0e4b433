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

std::string Table::to_text() const {
  const auto cell_text = [this](const Cell& cell, size_t column) {
    if (const auto* text = std::get_if<std::string>(&cell)) return *text;
    return fmt::format("{:.{}f}", std::get<double>(cell), columns_[column].digits);
  };
  std::vector<size_t> widths;
  std::vector<bool> numeric;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(columns_[c].name.size());
    numeric.push_back(!rows_.empty());
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], cell_text(row[c], c).size());
      if (std::holds_alternative<std::string>(row[c])) numeric[c] = false;
    }
  }
  std::string text;
  const auto put = [&](size_t c, std::string_view cell) {
    if (c > 0) text += "  ";
    const std::string space(widths[c] - cell.size(), ' ');
    if (numeric[c]) text += space;
    text += cell;
    if (!numeric[c] && c + 1 < columns_.size()) text += space;
  };
  for (size_t c = 0; c < columns_.size(); ++c) put(c, columns_[c].name);
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
