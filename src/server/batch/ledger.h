// Ledger: the file of a batch's answers, which is also the record of what was answered: who is in it is not asked
// again.
//
// A line is written as a whole, with one write, when its answer is there; what a killed process has left of one is cut
// off when the file is opened again. The file is locked as long as it is open.
//
// Thread rules: `append` by any thread; the others by the one that opened it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "server/batch/id_table.h"

namespace bolide::server {

class Ledger {
 public:
  struct Options {
    bool retry_errors = false;  // requests that failed are as if they had never been asked
  };
  // Opens the file, or begins one, and marks in `ids` who is in it. `looking(lines)` is told how far that is.
  // Errors, with file and line: it is no regular file, another run has it, a line is no answer or its custom_id is
  // there twice. Such a file is left as it is.
  static Result<std::unique_ptr<Ledger>> open(const std::filesystem::path& path, const Options& options, IdTable* ids,
                                              FunctionRef<void(uint64_t)> looking);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  ~Ledger();

  // A line with its newline. Errors: it cannot be written, of which nothing is left in the file.
  Result<> append(std::string_view line);
  // What was appended survives a loss of power.
  Result<> sync();
  uint64_t cut_bytes() const { return cut_bytes_; }  // what was cut off when it was opened

 private:
  explicit Ledger(std::filesystem::path path) : path_(std::move(path)) {}
  Result<> lock();
  Result<> lock_once(bool* moved);
  Result<> read(const Options& options, IdTable* ids, FunctionRef<void(uint64_t)> looking, bool* any_left_out);
  Result<> cut(uint64_t bytes);
  Result<> drop_failed();

  const std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t cut_bytes_ = 0;

  std::mutex mutex_;    // guards what follows, and the file's end
  uint64_t bytes_ = 0;  // of whole lines
  bool synced_ = true;
};

}  // namespace bolide::server
