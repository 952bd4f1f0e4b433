// Structured log: log::info("plan built", {{"steps", n}, {"arena_bytes", b}}).
//
// Records go to the one sink that the program has set; without one they are dropped, so libraries never print by
// themselves. Below the chosen level a call costs one atomic load.
//
// Thread rules: every function may be called from any thread. A sink must outlive its use: unset it before it dies.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/result.h"

namespace bolide::log {

enum class Level : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

std::string_view to_string(Level level);           // "debug", "info", "warning", "error", "off"
Result<Level> parse_level(std::string_view text);  // kInvalid names the choices

// A name and a value; refers to its text, so it is for call arguments only.
struct Field {
  std::string_view name;
  std::variant<bool, int64_t, uint64_t, double, std::string_view> value;

  template <class T>
  Field(std::string_view field_name, const T& v) : name(field_name) {
    if constexpr (std::is_same_v<T, bool>) {
      value = v;
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      value = static_cast<int64_t>(v);
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<uint64_t>(v);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<double>(v);
    } else {
      value = std::string_view(v);
    }
  }
};

struct Record {
  Level level = Level::kInfo;
  int64_t time_us = 0;  // since 1970, UTC
  std::string_view text;
  std::span<const Field> fields;
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const Record& record) = 0;  // may be called from several threads at once
};

enum class LineFormat : uint8_t { kKeyValue, kJson };

// One line, without its newline. kKeyValue: `2026-01-31T12:00:00.000000Z info "plan built" steps=3`; kJson:
// `{"time":"2026-01-31T12:00:00.000000Z","level":"info","text":"plan built","steps":3}`. Control characters never get
// out unescaped: a record is always one line.
std::string to_line(const Record& record, LineFormat format);

// Writes lines to an open stream, which it does not own.
class StreamSink : public Sink {
 public:
  StreamSink(std::FILE* stream, LineFormat format) : stream_(stream), format_(format) {}
  void write(const Record& record) override;

 private:
  std::FILE* stream_;
  LineFormat format_;
  std::mutex mutex_;  // keeps lines whole
};

// Sends records of `level` and above to `sink`; null drops everything.
void set_sink(Sink* sink, Level level);
bool enabled(Level level);
void write(Level level, std::string_view text, std::span<const Field> fields);

using Fields = std::initializer_list<Field>;
inline void debug(std::string_view text, Fields fields = {}) { write(Level::kDebug, text, fields); }
inline void info(std::string_view text, Fields fields = {}) { write(Level::kInfo, text, fields); }
inline void warning(std::string_view text, Fields fields = {}) { write(Level::kWarning, text, fields); }
inline void error(std::string_view text, Fields fields = {}) { write(Level::kError, text, fields); }

}  // namespace bolide::log
