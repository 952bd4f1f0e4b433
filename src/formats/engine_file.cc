#include "formats/engine_file.h"

#include <fmt/format.h>
#include <lzma.h>

#include <array>
#include <cstring>

namespace bolide {
namespace {

constexpr std::string_view kMagic("BOLIDE\0\1", 8);
constexpr size_t kFixedBytes = 24;
constexpr uint64_t kSectionAlignment = 4096;
constexpr uint64_t kTableBytesMax = 64u << 20;
constexpr uint32_t kSectionsMax = 1u << 20;

uint64_t crc_of(Bytes bytes) { return lzma_crc64(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), 0); }

Error broken(std::string what) {
  return error(Code::kInvalid, fmt::format("not a usable engine: {}; make it anew with `bolide build`", what));
}

// Reads forward through the table; false once it runs past the end.
struct Cursor {
  Bytes rest;

  template <class T>
  bool read(T* out) {
    if (rest.size() < sizeof(T)) return false;
    *out = load_unaligned<T>(rest.data());
    rest = rest.subspan(sizeof(T));
    return true;
  }
  bool read(std::string* out, size_t bytes) {
    if (rest.size() < bytes) return false;
    *out = as_text(rest.first(bytes));
    rest = rest.subspan(bytes);
    return true;
  }
};

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string make_table(std::span<const EngineSection> sections) {
  std::string table;
  append(table, static_cast<uint32_t>(sections.size()));
  for (const EngineSection& section : sections) {
    append(table, static_cast<uint16_t>(section.name.size()));
    table += section.name;
    append(table, section.offset);
    append(table, section.bytes);
    append(table, section.crc);
  }
  return table;
}

}  // namespace

Result<std::vector<EngineSection>> parse_engine_table(Bytes file) {
  if (!EngineFile::looks_like_engine(file)) return broken("it does not begin as an engine of this version does");
  if (file.size() < kFixedBytes) return broken("it is truncated");
  const auto table_bytes = load_unaligned<uint64_t>(file.data() + 8);
  if (table_bytes > kTableBytesMax || table_bytes > file.size() - kFixedBytes)
    return broken(fmt::format("its table of {} bytes does not fit the file of {}", table_bytes, file.size()));
  const Bytes table = file.subspan(kFixedBytes, table_bytes);
  if (crc_of(table) != load_unaligned<uint64_t>(file.data() + 16))
    return broken("the checksum of its table does not match");
  Cursor cursor{table};
  uint32_t count = 0;
  if (!cursor.read(&count) || count > kSectionsMax || count > table_bytes / 26) return broken("its table is malformed");
  std::vector<EngineSection> sections(count);
  for (EngineSection& section : sections) {
    uint16_t name_bytes = 0;
    uint64_t end = 0;
    if (!cursor.read(&name_bytes) || !cursor.read(&section.name, name_bytes) || !cursor.read(&section.offset) ||
        !cursor.read(&section.bytes) || !cursor.read(&section.crc))
      return broken("its table is malformed");
    if (section.offset % kSectionAlignment != 0 || add_overflows(section.offset, section.bytes, &end) ||
        end > file.size())
      return broken(fmt::format("section {} lies outside the file", section.name));
  }
  if (!cursor.rest.empty()) return broken("its table is malformed");
  return sections;
}

bool EngineFile::looks_like_engine(Bytes beginning) { return as_text(beginning).starts_with(kMagic); }

Result<EngineFile> EngineFile::open(const std::filesystem::path& path) {
  EngineFile engine;
  BOLIDE_TRY(MappedFile file, MappedFile::open(path));
  engine.file_ = std::make_shared<MappedFile>(std::move(file));
  auto sections = parse_engine_table(engine.file_->bytes()).context(path.string());
  BOLIDE_TRY(engine.sections_, std::move(sections));
  for (size_t i = 0; i < engine.sections_.size(); ++i)
    if (!engine.index_.emplace(engine.sections_[i].name, i).second)
      return broken(fmt::format("it has two sections {}", engine.sections_[i].name)).context(path.string());
  return engine;
}

Result<Bytes> EngineFile::section(std::string_view name, bool check) const {
  const auto it = index_.find(name);
  if (it == index_.end())
    return error(Code::kNotFound, fmt::format("the engine has no section {}; make it anew with `bolide build`", name));
  const EngineSection& section = sections_[it->second];
  const Bytes bytes = file_->bytes().subspan(section.offset, section.bytes);
  if (check && crc_of(bytes) != section.crc)
    return broken(fmt::format("the checksum of section {} does not match", name));
  return bytes;
}

Result<> write_engine_file(const std::filesystem::path& path, std::span<const EngineSectionData> sections) {
  std::vector<EngineSection> table;
  for (const EngineSectionData& data : sections) table.push_back({data.name, 0, data.bytes.size(), crc_of(data.bytes)});
  // The table's size does not depend on the offsets in it.
  uint64_t offset = kFixedBytes + make_table(table).size();
  for (EngineSection& section : table) {
    section.offset = round_up(offset, kSectionAlignment);
    offset = section.offset + section.bytes;
  }
  const std::string text = make_table(table);
  std::string head(kMagic);
  append(head, static_cast<uint64_t>(text.size()));
  append(head, crc_of(as_bytes(text)));
  head += text;

  BOLIDE_TRY(AtomicFile file, AtomicFile::create(path));
  BOLIDE_TRY(file.append(as_bytes(head)));
  uint64_t written = head.size();
  const std::array<std::byte, kSectionAlignment> zeros{};
  for (size_t i = 0; i < table.size(); ++i) {
    BOLIDE_TRY(file.append(Bytes(zeros).first(table[i].offset - written)));
    BOLIDE_TRY(file.append(sections[i].bytes));
    written = table[i].offset + table[i].bytes;
  }
  return file.commit();
}

}  // namespace bolide
