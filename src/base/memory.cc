#include "base/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>

#include "base/bytes.h"

namespace bolide {
namespace {

using Path = std::filesystem::path;

// The number behind `key` in a file of lines "MemAvailable:  123 kB" or "inactive_file 123"; `missing` if there is
// none.
size_t number_of(const Path& path, std::string_view key, size_t missing) {
  std::ifstream file(path);
  size_t value = 0;
  for (std::string word, rest; file >> word; std::getline(file, rest))
    if (word == key) return file >> value ? value : missing;
  return missing;
}

size_t number_in(const Path& path, size_t missing) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : missing;  // "max" is no number
}

// What one group can still give. A file read twice counts as active; both kinds of pages can be given up.
size_t left_in(const Path& group) {
  const size_t limit = number_in(group / "memory.max", SIZE_MAX);
  const size_t used = number_in(group / "memory.current", 0);
  if (limit == SIZE_MAX) return SIZE_MAX;
  const size_t files =
      number_of(group / "memory.stat", "inactive_file", 0) + number_of(group / "memory.stat", "active_file", 0);
  const size_t held = used - std::min(used, files);
  return limit - std::min(limit, held);
}

}  // namespace

size_t available_memory_bytes(const Path& root) {
  const size_t kib = number_of(root / "proc/meminfo", "MemAvailable:", SIZE_MAX);
  size_t available = kib > SIZE_MAX / 1024 ? SIZE_MAX : kib * 1024;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/some/group" is version 2
    if (!line.starts_with("0::/") || line.find("..") != std::string::npos) continue;
    const Path mount = root / "sys/fs/cgroup";
    for (Path group = line.substr(4);; group = group.parent_path()) {
      available = std::min(available, left_in(group.empty() ? mount : mount / group));
      if (group.empty()) break;
    }
  }
  return available;
}

std::string size_text(size_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

Result<> expect_memory(int64_t count, size_t item_bytes) {
  uint64_t bytes = item_bytes;
  if (count <= 0) return {};
  return expect_memory(mul_overflows(bytes, static_cast<uint64_t>(count), &bytes) ? SIZE_MAX : bytes);
}

Result<> expect_memory(size_t bytes) {
  if (bytes < kMemoryAskedFrom) return {};
  const size_t available = available_memory_bytes();
  const size_t room = available - memory_to_leave(available);
  if (bytes <= room) return {};
  return error(Code::kOutOfMemory,
               fmt::format("{} more are not to be had: {} are available, of which {} are left alone", size_text(bytes),
                           size_text(available), size_text(memory_to_leave(available))));
}

std::string address_limit_note() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(" (this process's address space is limited to {:.1f} MB: RLIMIT_AS, ulimit -v)",
                     static_cast<double>(limit.rlim_cur) / 1e6);
}

}  // namespace bolide
