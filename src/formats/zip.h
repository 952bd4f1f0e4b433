// Zip archives, as .npz files are: entries stored or deflated, ZIP64 sizes. No encryption, no spanning.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace bolide {

struct ZipEntry {
  std::string_view name;  // a view of the archive
  uint16_t method = 0;    // 0 stored, 8 deflated
  uint64_t packed_bytes = 0, bytes = 0, offset = 0;
  uint32_t crc = 0;
};

// The entries of the central directory. Errors: no archive, or one that is broken.
Result<std::vector<ZipEntry>> parse_zip(Bytes archive);
// An entry's bytes, at most kUnzippedMax of them; its checksum is verified.
inline constexpr uint64_t kUnzippedMax = uint64_t{1} << 36;
Result<std::vector<std::byte>> unzip(Bytes archive, const ZipEntry& entry);

// An archive of stored entries.
Result<std::vector<std::byte>> write_zip(const std::vector<std::pair<std::string, std::vector<std::byte>>>& files);

}  // namespace bolide
