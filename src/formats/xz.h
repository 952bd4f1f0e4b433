// Reading .xz files.
#pragma once

#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace bolide {

// Errors: kInvalid (not xz, damaged, cut short, or more than `bytes_max` when unpacked), kOutOfMemory. Needs at most
// 80 MiB beside the result.
Result<std::string> unpack_xz(Bytes packed, size_t bytes_max);

// `path` as it is, or else `path`.xz unpacked.
Result<std::string> read_file_or_xz(const std::filesystem::path& path, size_t bytes_max);

}  // namespace bolide
