// The engine file's container: named sections behind a checksummed table. What the sections hold is app/engine's
// business.
//
//   0   "BOLIDE\0\1"  magic and container version
//   8   u64  bytes of the table          16  u64  CRC-64 of the table
//   24  table: u32 sections, then for each u16 name bytes, name, u64 offset, u64 bytes, u64 CRC-64 (all little endian)
//   sections, each at a multiple of 4096 bytes so that it can be mapped, in table order
//
// Thread rules: an EngineFile is immutable and may be read from any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace bolide {

struct EngineSection {
  std::string name;
  uint64_t offset = 0, bytes = 0, crc = 0;
};

// Reads and checks the table of a whole file: magic, CRC, every section inside the file. kInvalid says what is wrong
// and that `bolide build` makes the engine anew.
Result<std::vector<EngineSection>> parse_engine_table(Bytes file);

class EngineFile {
 public:
  static Result<EngineFile> open(const std::filesystem::path& path);
  // True if the file begins like an engine, whatever follows.
  static bool looks_like_engine(Bytes beginning);

  // kNotFound if there is no such section; with `check`, kInvalid if its checksum does not match.
  Result<Bytes> section(std::string_view name, bool check) const;
  std::span<const EngineSection> sections() const { return sections_; }
  std::shared_ptr<const MappedFile> file() const { return file_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<EngineSection> sections_;
  std::map<std::string, size_t, std::less<>> index_;  // into sections_, by name
};

struct EngineSectionData {
  std::string name;
  Bytes bytes;
};

// Writes beside `path` and renames when everything is on disk.
Result<> write_engine_file(const std::filesystem::path& path, std::span<const EngineSectionData> sections);

}  // namespace bolide
