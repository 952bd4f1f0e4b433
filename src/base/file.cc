#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

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

Error errno_error(const std::filesystem::path& path, std::string_view what) {
  const int number = errno;
  const Code code = number == ENOENT || number == ENOTDIR ? Code::kNotFound
                    : number == ENOMEM                    ? Code::kOutOfMemory
                    : number == EACCES || number == EPERM ? Code::kUnavailable
                                                          : Code::kInvalid;
  if (number == ENOENT) return error(code, fmt::format("{}: no such file", path.string()));
  return error(code, fmt::format("{}: {}: {}", path.string(), what, std::strerror(number)));
}

Result<uint64_t> regular_size(const std::filesystem::path& path, int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return errno_error(path, "cannot be examined");
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

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe without a writer would otherwise wait for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return errno_error(path, "cannot be opened");
  BOLIDE_TRY(const uint64_t size, regular_size(path, file.fd));
  MappedFile mapped;
  mapped.path_ = path;
  if (size == 0) return mapped;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return errno_error(path, "cannot be mapped");
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = size;
  BOLIDE_TRY(refuse_lfs_pointer(path, as_text(mapped.bytes())));
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
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

Result<std::string> read_file(const std::filesystem::path& path, uint64_t bytes_max) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return errno_error(path, "cannot be opened");
  BOLIDE_TRY(const uint64_t size, regular_size(path, file.fd));
  if (size > bytes_max)
    return error(Code::kInvalid,
                 fmt::format("{}: has {} bytes; at most {} are read here", path.string(), size, bytes_max));
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(path, "cannot be read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  BOLIDE_TRY(refuse_lfs_pointer(path, text));
  return text;
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  // Renaming over a device or pipe would put a plain file in its place, for the whole machine if it is /dev/null.
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return error(Code::kInvalid,
                 fmt::format("{}: is a {}; give the name of a file to write", path.string(),
                             S_ISDIR(status.st_mode) ? "directory" : "device or pipe, which cannot be replaced"));
  AtomicFile file;
  file.path_ = path;
  file.temporary_ = path;
  file.temporary_ += fmt::format(".tmp{}", ::getpid());
  file.descriptor_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.descriptor_ < 0 && errno == ENOENT)
    return error(Code::kNotFound, fmt::format("{}: cannot be created: its folder does not exist", path.string()));
  if (file.descriptor_ < 0) return errno_error(path, "cannot be created");
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Result<> AtomicFile::append(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(path_, "cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<> AtomicFile::commit() {
  if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)
    return errno_error(path_, "cannot be written");
  ::close(std::exchange(descriptor_, -1));
  return {};
}

Result<> write_file_atomically(const std::filesystem::path& path, Bytes contents) {
  BOLIDE_TRY(AtomicFile file, AtomicFile::create(path));
  BOLIDE_TRY(file.append(contents));
  return file.commit();
}

}  // namespace bolide
