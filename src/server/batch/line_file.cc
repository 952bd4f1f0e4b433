#include "server/batch/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"

namespace bolide::server {
namespace {

constexpr size_t kReadBytes = 256 * 1024;

}  // namespace

Result<LineFile> LineFile::open(const std::filesystem::path& path, size_t line_bytes_max) {
  LineFile file;
  file.path_ = path;
  file.line_bytes_max_ = line_bytes_max;
  // O_NONBLOCK: opening a pipe without a writer would otherwise wait for ever.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) return file_error(path, "cannot be opened", errno);
  struct stat status{};
  if (::fstat(file.descriptor_, &status) != 0) return file_error(path, "cannot be examined", errno);
  if (!S_ISREG(status.st_mode))
    return error(Code::kInvalid,
                 fmt::format("{}: is not a regular file; it is read more than once: save it to one", path.string()));
  file.bytes_ = static_cast<uint64_t>(status.st_size);
  return file;
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      line_bytes_max_(other.line_bytes_max_),
      bytes_(other.bytes_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      number_(other.number_),
      offset_(other.offset_),
      all_read_(other.all_read_) {}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string LineFile::at(const Line& line) const { return fmt::format("{}:{}", path_.string(), line.number); }

Result<std::optional<LineFile::Line>> LineFile::next() {
  size_t searched = begin_;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    const bool ended = end != std::string::npos;
    if (ended || all_read_) {
      if (!ended && begin_ == buffer_.size()) return std::optional<Line>();
      const size_t size = (ended ? end : buffer_.size()) - begin_;
      const Line line{++number_, offset_, std::string_view(buffer_).substr(begin_, size), ended};
      begin_ += size + (ended ? 1 : 0);
      offset_ += size + (ended ? 1 : 0);
      return std::optional<Line>(line);
    }
    buffer_.erase(0, std::exchange(begin_, 0));
    searched = buffer_.size();
    if (searched > line_bytes_max_)
      return error(Code::kInvalid, fmt::format("{}:{}: the line has more than {} bytes, which is the most one may have",
                                               path_.string(), number_ + 1, line_bytes_max_));
    buffer_.resize(searched + kReadBytes);
    ssize_t n = -1;
    do n = ::read(descriptor_, buffer_.data() + searched, kReadBytes);
    while (n < 0 && errno == EINTR);
    if (n < 0) return file_error(path_, "cannot be read", errno);
    buffer_.resize(searched + static_cast<size_t>(n));
    all_read_ = n == 0;
  }
}

}  // namespace bolide::server
