#include "formats/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

namespace bolide {
namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kCentral = 0x02014b50,
                   kLocal = 0x04034b50;

Error broken(std::string_view what) { return error(Code::kInvalid, fmt::format("a broken zip archive: {}", what)); }

template <class T>
T at(Bytes bytes, size_t offset) {
  return load_unaligned<T>(bytes.data() + offset);
}

// CRC-32 of any number of bytes.
uint32_t crc_of(Bytes bytes) {
  uLong crc = crc32(0, nullptr, 0);
  while (!bytes.empty()) {
    const size_t some = std::min<size_t>(bytes.size(), 1u << 30);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(some));
    bytes = bytes.subspan(some);
  }
  return static_cast<uint32_t>(crc);
}

struct Directory {
  uint64_t count = 0, bytes = 0, offset = 0;
};

Result<Directory> find_directory(Bytes archive) {
  constexpr size_t kSize = 22, kSize64 = 56, kLocatorSize = 20, kCommentMax = 65535;
  if (archive.size() < kSize) return broken("it is too short");
  const size_t first = archive.size() - std::min(archive.size(), kSize + kCommentMax);
  for (size_t i = archive.size() - kSize + 1; i-- > first;) {
    if (at<uint32_t>(archive, i) != kEnd) continue;
    Directory found{at<uint16_t>(archive, i + 10), at<uint32_t>(archive, i + 12), at<uint32_t>(archive, i + 16)};
    if (i >= kLocatorSize && at<uint32_t>(archive, i - kLocatorSize) == kLocator64) {
      const auto place = at<uint64_t>(archive, i - kLocatorSize + 8);
      if (place > archive.size() || archive.size() - place < kSize64 || at<uint32_t>(archive, place) != kEnd64)
        return broken("its ZIP64 directory is not where it should be");
      found = {at<uint64_t>(archive, place + 32), at<uint64_t>(archive, place + 40), at<uint64_t>(archive, place + 48)};
    }
    if (found.offset > archive.size() || found.bytes > archive.size() - found.offset)
      return broken("its directory lies outside");
    return found;
  }
  return broken("it has no directory");
}

}  // namespace

Result<std::vector<ZipEntry>> parse_zip(Bytes archive) {
  BOLIDE_TRY(const Directory directory, find_directory(archive));
  Bytes rest = archive.subspan(directory.offset, directory.bytes);
  std::vector<ZipEntry> entries;
  while (!rest.empty()) {
    constexpr size_t kSize = 46;
    if (rest.size() < kSize || at<uint32_t>(rest, 0) != kCentral)
      return broken("its directory has no entry where one should be");
    const size_t name = at<uint16_t>(rest, 28), extra = at<uint16_t>(rest, 30), comment = at<uint16_t>(rest, 32);
    if (rest.size() - kSize < name + extra + comment) return broken("its directory ends amid an entry");
    ZipEntry entry;
    entry.name = as_text(rest.subspan(kSize, name));
    if ((at<uint16_t>(rest, 8) & 1) != 0)
      return error(Code::kUnsupported, fmt::format("{:.100} is encrypted", entry.name));
    entry.method = at<uint16_t>(rest, 10);
    entry.crc = at<uint32_t>(rest, 16);
    entry.packed_bytes = at<uint32_t>(rest, 20), entry.bytes = at<uint32_t>(rest, 24),
    entry.offset = at<uint32_t>(rest, 42);
    // ZIP64: those of the three that are all ones, in this order.
    for (Bytes more = rest.subspan(kSize + name, extra); more.size() >= 4;) {
      const size_t size = at<uint16_t>(more, 2);
      if (size > more.size() - 4) return broken("an entry's extra field");
      if (at<uint16_t>(more, 0) == 1) {
        Bytes numbers = more.subspan(4, size);
        for (uint64_t* number : {&entry.bytes, &entry.packed_bytes, &entry.offset}) {
          if (*number != 0xffffffffu) continue;
          if (numbers.size() < 8) return broken("an entry's ZIP64 sizes");
          *number = at<uint64_t>(numbers, 0);
          numbers = numbers.subspan(8);
        }
      }
      more = more.subspan(4 + size);
    }
    entries.push_back(entry);
    rest = rest.subspan(kSize + name + extra + comment);
  }
  if (entries.size() != directory.count) return broken("its directory has another number of entries");
  return entries;
}

Result<std::vector<std::byte>> unzip(Bytes archive, const ZipEntry& entry) {
  constexpr size_t kSize = 30;
  if (entry.offset > archive.size() || archive.size() - entry.offset < kSize ||
      at<uint32_t>(archive, entry.offset) != kLocal)
    return broken(fmt::format("{:.100} is not where it should be", entry.name));
  const uint64_t begin =
      entry.offset + kSize + at<uint16_t>(archive, entry.offset + 26) + at<uint16_t>(archive, entry.offset + 28);
  if (begin > archive.size() || entry.packed_bytes > archive.size() - begin)
    return broken(fmt::format("{:.100} lies outside", entry.name));
  const Bytes packed = archive.subspan(begin, entry.packed_bytes);
  // Deflate makes at most about 1,032 bytes of one.
  if (entry.bytes > kUnzippedMax || entry.bytes / 1100 > entry.packed_bytes)
    return broken(fmt::format("{:.100} says that it holds {} bytes", entry.name, entry.bytes));
  std::vector<std::byte> bytes(entry.bytes);
  if (entry.method == 0) {
    if (packed.size() != bytes.size()) return broken(fmt::format("the size of {:.100}", entry.name));
    std::copy(packed.begin(), packed.end(), bytes.begin());
  } else if (entry.method == 8) {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return error(Code::kOutOfMemory, "no memory to unzip");
    int status = Z_OK;
    size_t in = 0, out = 0;
    while (status == Z_OK) {
      const size_t some_in = std::min<size_t>(packed.size() - in, 1u << 30),
                   some_out = std::min<size_t>(bytes.size() - out, 1u << 30);
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + in));
      stream.avail_in = static_cast<uInt>(some_in);
      stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + out);
      stream.avail_out = static_cast<uInt>(some_out);
      status = inflate(&stream, Z_NO_FLUSH);
      in += some_in - stream.avail_in, out += some_out - stream.avail_out;
      if (status == Z_OK && some_in == stream.avail_in && some_out == stream.avail_out) status = Z_DATA_ERROR;
    }
    inflateEnd(&stream);
    if (status != Z_STREAM_END || out != bytes.size())
      return broken(fmt::format("{:.100} does not inflate", entry.name));
  } else {
    return error(Code::kUnsupported, fmt::format("{:.100} is packed by method {}", entry.name, entry.method));
  }
  if (crc_of(bytes) != entry.crc) return broken(fmt::format("the checksum of {:.100}", entry.name));
  return bytes;
}

Result<std::vector<std::byte>> write_zip(const std::vector<std::pair<std::string, std::vector<std::byte>>>& files) {
  std::vector<std::byte> archive, directory;
  const auto put = [](std::vector<std::byte>& to, auto... numbers) {
    const auto one = [&](auto number) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&number);
      to.insert(to.end(), bytes, bytes + sizeof(number));
    };
    (one(numbers), ...);
  };
  for (const auto& [name, bytes] : files) {
    if (bytes.size() >= 0xffffffffu || archive.size() >= 0xffffffffu - bytes.size() - 1000 || name.size() > 60000)
      return error(Code::kUnsupported, fmt::format("{:.100}: an archive of 4 GiB or more: write .npy files", name));
    const uint32_t crc = crc_of(bytes);
    const auto size = static_cast<uint32_t>(bytes.size()), offset = static_cast<uint32_t>(archive.size());
    const auto name_size = static_cast<uint16_t>(name.size());
    constexpr uint16_t kVersion = 20, kNone = 0, kDate = 0x21;
    put(archive, kLocal, kVersion, kNone, kNone, kNone, kDate, crc, size, size, name_size, kNone);
    put(directory, kCentral, kVersion, kVersion, kNone, kNone, kNone, kDate, crc, size, size, name_size, kNone, kNone,
        kNone, kNone, uint32_t{0}, offset);
    const Bytes text = as_bytes(name);
    archive.insert(archive.end(), text.begin(), text.end());
    directory.insert(directory.end(), text.begin(), text.end());
    archive.insert(archive.end(), bytes.begin(), bytes.end());
  }
  const auto offset = static_cast<uint32_t>(archive.size()), size = static_cast<uint32_t>(directory.size());
  const auto count = static_cast<uint16_t>(files.size());
  archive.insert(archive.end(), directory.begin(), directory.end());
  put(archive, kEnd, uint16_t{0}, uint16_t{0}, count, count, size, offset, uint16_t{0});
  return archive;
}

}  // namespace bolide
