// LineFile: the lines of a file of any size, one after the other, in the memory of one.
//
// Owner: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace bolide::server {

class LineFile {
 public:
  struct Line {
    uint64_t number = 1;    // from 1
    uint64_t begin = 0;     // its first byte's place in the file
    std::string_view text;  // without its newline; until the next call
    bool ended = true;      // by a newline; only the last may not be
  };

  // Errors: kNotFound; kUnavailable, no permission; kInvalid, not a regular file.
  static Result<LineFile> open(const std::filesystem::path& path, size_t line_bytes_max);
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&&) = delete;
  ~LineFile();

  // Null: there are no more. Errors name file and line: a line that is too long, a medium that fails.
  Result<std::optional<Line>> next();
  // "requests.jsonl:12", for errors.
  std::string at(const Line& line) const;
  uint64_t bytes() const { return bytes_; }  // of the file, when it was opened
  const std::filesystem::path& path() const { return path_; }

 private:
  LineFile() = default;

  std::filesystem::path path_;
  int descriptor_ = -1;
  size_t line_bytes_max_ = 0;
  uint64_t bytes_ = 0;
  std::string buffer_;
  size_t begin_ = 0;  // of the next line, in the buffer
  uint64_t number_ = 0, offset_ = 0;
  bool all_read_ = false;
};

}  // namespace bolide::server
