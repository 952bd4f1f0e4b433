#include "base/log.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <iterator>

#include "base/json_string.h"

namespace bolide::log {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};

std::atomic<Sink*> g_sink{nullptr};
std::atomic<Level> g_level{Level::kOff};

void append_time(std::string& out, int64_t time_us) {
  const std::time_t seconds = static_cast<std::time_t>(time_us / 1'000'000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  fmt::format_to(std::back_inserter(out), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", utc.tm_year + 1900,
                 utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, time_us % 1'000'000);
}

bool is_plain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text)
    if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\') return false;
  return true;
}

void append_value(std::string& out, const Field& field, LineFormat format) {
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    if (format == LineFormat::kKeyValue && is_plain(*text)) {
      out += *text;
    } else {
      append_json_string(out, *text);
    }
  } else if (const auto* number = std::get_if<double>(&field.value);
             number != nullptr && !std::isfinite(*number) && format == LineFormat::kJson) {
    out += "null";  // JSON has no infinities
  } else {
    std::visit(
        [&](const auto& value) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::string_view>)
            fmt::format_to(std::back_inserter(out), "{}", value);
        },
        field.value);
  }
}

}  // namespace

std::string_view to_string(Level level) { return kLevelNames[static_cast<size_t>(level)]; }

Result<Level> parse_level(std::string_view text) {
  for (size_t i = 0; i < kLevelNames.size(); ++i)
    if (kLevelNames[i] == text) return static_cast<Level>(i);
  return bolide::error(Code::kInvalid, fmt::format("\"{}\" is no log level; choose debug, info, warning, error or off",
                                                   text.substr(0, 40)));
}

std::string to_line(const Record& record, LineFormat format) {
  std::string line;
  if (format == LineFormat::kJson) {
    line += "{\"time\":\"";
    append_time(line, record.time_us);
    line += "\",\"level\":\"";
    line += to_string(record.level);
    line += "\",\"text\":";
    append_json_string(line, record.text);
    for (const Field& field : record.fields) {
      line += ',';
      append_json_string(line, field.name);
      line += ':';
      append_value(line, field, format);
    }
    line += '}';
    return line;
  }
  append_time(line, record.time_us);
  line += ' ';
  line += to_string(record.level);
  line += ' ';
  append_json_string(line, record.text);
  for (const Field& field : record.fields) {
    line += ' ';
    if (is_plain(field.name)) {
      line += field.name;
    } else {
      append_json_string(line, field.name);
    }
    line += '=';
    append_value(line, field, format);
  }
  return line;
}

void StreamSink::write(const Record& record) {
  std::string line = to_line(record, format_);
  line += '\n';
  const std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), stream_);
  std::fflush(stream_);
}

void set_sink(Sink* sink, Level level) {
  g_level.store(Level::kOff);
  g_sink.store(sink);
  if (sink != nullptr) g_level.store(level);
}

bool enabled(Level level) { return level >= g_level.load(std::memory_order_relaxed) && level < Level::kOff; }

void write(Level level, std::string_view text, std::span<const Field> fields) {
  if (!enabled(level)) return;
  Sink* sink = g_sink.load();
  if (sink == nullptr) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  sink->write({level, std::chrono::duration_cast<std::chrono::microseconds>(now).count(), text, fields});
}

}  // namespace bolide::log
