// Files: read-only mappings and small whole-file reads, with errors that name the path and the remedy.
//
// Thread rules: a MappedFile is immutable after open and may be read from any thread.
#pragma once

#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace bolide {

// A regular file mapped read-only. Refuses pipes, directories and Git LFS pointers by name. A file that another
// process truncates while it is mapped raises SIGBUS, as for every program that maps files: a program's handler can ask
// mapped_file_at which file it was.
class MappedFile {
 public:
  // Errors: kNotFound (no such file), kInvalid (not a regular file, an LFS pointer), kUnavailable (no permission).
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  Bytes bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Tells the kernel that these pages of the mapping are no longer needed here (they stay in the page cache).
  void release(size_t offset, size_t size) const;
  void release(Bytes part) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int known_ = -1;  // entry of the table that mapped_file_at reads
  std::filesystem::path path_;
};

// MappedFile::release of whichever file's mapping this lies in; nothing if it lies in none.
void release_mapped(Bytes part);

// The path of the mapped file that this address lies in; null if there is none. Async-signal-safe.
const char* mapped_file_at(const void* address) noexcept;

// "PATH: WHAT: REASON" for an errno, with the code that fits it.
Error file_error(const std::filesystem::path& path, std::string_view what, int number);

// Reads a whole file of at most `bytes_max` bytes. For configuration, templates, prompts: not for weights. Refuses what
// MappedFile refuses.
Result<std::string> read_file(const std::filesystem::path& path, uint64_t bytes_max = 64u << 20);

// A file written beside `path` and renamed over it by commit: readers see the old file or the whole new one. Without a
// commit nothing is left behind. A symbolic link stays: what it leads to is written. A file that is replaced keeps its
// mode. Leftovers of processes that died amid writing the same file are removed. One thread.
class AtomicFile {
 public:
  // Errors: kNotFound (no such folder), kInvalid (`path` is there and no regular file, leads there, leads in a circle,
  // or is among the system's: /dev, /proc, /sys), kUnavailable (no permission).
  static Result<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Result<> append(Bytes bytes);
  Result<> commit();

 private:
  AtomicFile() = default;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  int unfinished_ = -1;  // entry of the table that remove_unfinished_files reads
};

// Removes what this process's AtomicFiles have written and not committed: for a handler of a signal that ends the
// program. Async-signal-safe.
void remove_unfinished_files() noexcept;

// What AtomicFile::create would refuse before anything is written: for a long computation whose result goes there.
Result<> check_output_file(const std::filesystem::path& path);

Result<> write_file_atomically(const std::filesystem::path& path, Bytes contents);

}  // namespace bolide
