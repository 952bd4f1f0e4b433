// Small pieces of every report: this process's memory, and tables that print as text and as JSON.
//
// Thread rules: plain values; read_process_memory may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace bolide {

struct ProcessMemory {
  int64_t peak_bytes = 0;       // VmHWM: the most that was ever resident, mapped files included
  int64_t resident_bytes = 0;   // VmRSS
  int64_t anonymous_bytes = 0;  // RssAnon: resident and not backed by a file
};

// kUnavailable where there is no /proc/self/status.
Result<ProcessMemory> read_process_memory();
// The same from the text of such a file; kInvalid names the missing field.
Result<ProcessMemory> parse_process_memory(std::string_view status);

// "1.50 GiB", "512 B".
std::string format_bytes(int64_t bytes);

// Rows of texts and numbers under named columns. Text columns are left-aligned, numbers right-aligned with the column's
// digits after the point; NaN, what is not known, is a dash in text and null in JSON.
class Table {
 public:
  using Cell = std::variant<std::string, double>;
  struct Column {
    std::string name;
    int digits = 2;
    std::string title;  // in text; empty: the name
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);  // as many cells as columns

  // `width` > 0: columns of texts are cut, the widest first and none below kTextLeast, until lines have so many
  // characters at most.
  std::string to_text(size_t width = 0) const;
  static constexpr size_t kTextLeast = 8;
  std::string to_json() const;  // [{"name": "...", "ms": 1.25}, ...], numbers in full; infinite ones are null too

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace bolide
