#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/memory.h"

namespace bolide {
namespace {

// Closes on scope exit; owned by one function.
struct Descriptor {
  int fd = -1;
  Descriptor(int f) : fd(f) {}  // NOLINT(google-explicit-constructor)
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The mappings that are there, for a handler of SIGBUS: what it reads is atomic, and the name of a mapping lives as
// long as the mapping.
struct KnownMapping {
  std::atomic<bool> taken{false};
  std::atomic<const std::byte*> data{nullptr};
  std::atomic<size_t> size{0};
  std::atomic<char*> name{nullptr};
};
std::array<KnownMapping, 1024> g_mappings;  // more than a checkpoint has shards; those beyond are not named

int remember_mapping(const std::byte* data, size_t size, const std::filesystem::path& path) {
  for (size_t i = 0; i < g_mappings.size(); ++i) {
    KnownMapping& mapping = g_mappings[i];
    if (mapping.taken.exchange(true)) continue;
    mapping.name.store(::strdup(path.c_str()));
    mapping.size.store(size);
    mapping.data.store(data);
    return static_cast<int>(i);
  }
  return -1;
}

void forget_mapping(int index) {
  if (index < 0) return;
  KnownMapping& mapping = g_mappings[static_cast<size_t>(index)];
  mapping.data.store(nullptr);
  std::free(mapping.name.exchange(nullptr));
  mapping.taken.store(false);
}

Result<uint64_t> regular_size(const std::filesystem::path& path, int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return file_error(path, "cannot be examined", errno);
  if (S_ISDIR(status.st_mode))
    return error(Code::kInvalid, fmt::format("{}: is a directory, not a file", path.string()));
  if (!S_ISREG(status.st_mode))
    return error(Code::kInvalid,
                 fmt::format("{}: is not a regular file (a pipe or device cannot be mapped); save it to a file first",
                             path.string()));
  return static_cast<uint64_t>(status.st_size);
}

constexpr std::string_view kLfsMagic = "version https://git-lfs.github.com/spec/";

Result<> refuse_lfs_pointer(const std::filesystem::path& path, std::string_view contents) {
  if (!contents.starts_with(kLfsMagic)) return {};
  return error(
      Code::kInvalid,
      fmt::format("{}: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder", path.string()));
}

}  // namespace

Error file_error(const std::filesystem::path& path, std::string_view what, int number) {
  const Code code = number == ENOENT || number == ENOTDIR ? Code::kNotFound
                    : number == ENOMEM                    ? Code::kOutOfMemory
                    : number == EACCES || number == EPERM ? Code::kUnavailable
                                                          : Code::kInvalid;
  if (number == ENOENT) return error(code, fmt::format("{}: no such file", path.string()));
  return error(code, fmt::format("{}: {}: {}{}", path.string(), what, std::strerror(number),
                                 number == ENOMEM ? address_limit_note() : ""));
}

const char* mapped_file_at(const void* address) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const KnownMapping& mapping : g_mappings) {
    const auto begin = reinterpret_cast<uintptr_t>(mapping.data.load());
    // The kernel reports the page of the fault, which may reach beyond the file's last byte.
    if (begin != 0 && at >= begin && at - begin < round_up(mapping.size.load(), size_t{4096}))
      return mapping.name.load();
  }
  return nullptr;
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe without a writer would otherwise wait for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return file_error(path, "cannot be opened", errno);
  BOLIDE_TRY(const uint64_t size, regular_size(path, file.fd));
  MappedFile mapped;
  mapped.path_ = path;
  if (size == 0) return mapped;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return file_error(path, "cannot be mapped", errno);
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = size;
  mapped.known_ = remember_mapping(mapped.data_, size, path);
  BOLIDE_TRY(refuse_lfs_pointer(path, as_text(mapped.bytes())));
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      known_(std::exchange(other.known_, -1)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(known_, other.known_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  forget_mapping(known_);
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t size) const {
  if (offset >= size_) return;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = round_up(offset, page);
  const size_t last = std::min(offset + size, size_) / page * page;
  if (first < last) ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

void MappedFile::release(Bytes part) const {
  if (part.data() >= data_ && part.data() < data_ + size_)
    release(static_cast<size_t>(part.data() - data_), part.size());
}

void release_mapped(Bytes part) {
  if (part.empty() || mapped_file_at(part.data()) == nullptr || mapped_file_at(&part.back()) == nullptr) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()), end = begin + part.size();
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(const_cast<std::byte*>(part.data()) + (first - begin), last - first, MADV_DONTNEED);
}

Result<std::string> read_file(const std::filesystem::path& path, uint64_t bytes_max) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return file_error(path, "cannot be opened", errno);
  BOLIDE_TRY(const uint64_t size, regular_size(path, file.fd));
  if (size > bytes_max)
    return error(Code::kInvalid,
                 fmt::format("{}: has {} bytes; at most {} are read here", path.string(), size, bytes_max));
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "cannot be read", errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  BOLIDE_TRY(refuse_lfs_pointer(path, text));
  return text;
}

}  // namespace bolide
