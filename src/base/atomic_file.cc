#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <utility>

#include "base/file.h"

namespace bolide {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view kMark = ".tmp";  // then the process's id
constexpr int kLinksMax = 40;               // as many as Linux follows

// Paths of files that are being written, for a handler of signals: nothing in it is allocated.
struct Unfinished {
  enum State : int { kFree, kClaimed, kSet };
  std::atomic<int> state{kFree};
  char path[PATH_MAX];
};
std::array<Unfinished, 8> g_unfinished;

int remember_unfinished(const Path& path) {
  if (path.native().size() >= PATH_MAX) return -1;
  for (size_t i = 0; i < g_unfinished.size(); ++i) {
    int expected = Unfinished::kFree;
    if (!g_unfinished[i].state.compare_exchange_strong(expected, Unfinished::kClaimed)) continue;
    std::memcpy(g_unfinished[i].path, path.c_str(), path.native().size() + 1);
    g_unfinished[i].state.store(Unfinished::kSet);
    return static_cast<int>(i);
  }
  return -1;
}

void forget_unfinished(int index) {
  if (index >= 0) g_unfinished[static_cast<size_t>(index)].state.store(Unfinished::kFree);
}

bool lies_in(const Path& folder, const Path& root) {
  return std::mismatch(root.begin(), root.end(), folder.begin(), folder.end()).first == root.end();
}

// Links there lead to open files and terminals, and a plain file in place of a device is one for the whole machine.
bool belongs_to_system(const Path& folder) {
  if (lies_in(folder, "/dev/shm")) return false;  // a folder like others, in memory
  return lies_in(folder, "/dev") || lies_in(folder, "/proc") || lies_in(folder, "/sys");
}

Error no_folder(const Path& path) {
  return error(Code::kNotFound, fmt::format("{}: cannot be created: its folder does not exist", path.string()));
}

struct Output {
  Path path;                // behind the links
  bool exists = false;      // a regular file
  struct stat status = {};  // of it
};

// Follows the links of `given`: renaming over a link, a device or a pipe would put a plain file in its place, for the
// whole machine if it is /dev/null.
Result<Output> resolve_output(const Path& given) {
  Output output;
  output.path = given;
  for (int links = 0; links <= kLinksMax; ++links) {
    const std::string name = output.path == given
                                 ? given.string()
                                 : fmt::format("{}: leads to {}, which", given.string(), output.path.string());
    const std::string subject = output.path == given ? name + ":" : name;
    std::error_code problem;
    const Path parent = output.path.has_parent_path() ? output.path.parent_path() : Path(".");
    const Path folder = std::filesystem::canonical(parent, problem);
    if (problem == std::errc::no_such_file_or_directory || problem == std::errc::not_a_directory)
      return no_folder(output.path == given ? given
                                            : Path(given.string() + " (a link to " + output.path.string() + ")"));
    if (problem) return file_error(given, "cannot be created", problem.value());
    if (belongs_to_system(folder))
      return error(Code::kInvalid,
                   fmt::format("{} is in {}, where the system's devices are; give the name of a file to write", subject,
                               folder.string()));
    if (::lstat(output.path.c_str(), &output.status) != 0) {
      if (errno == ENOENT) return output;
      return file_error(given, "cannot be examined", errno);
    }
    if (S_ISREG(output.status.st_mode)) {
      output.exists = true;
      return output;
    }
    if (!S_ISLNK(output.status.st_mode))
      return error(
          Code::kInvalid,
          fmt::format("{} is a {}; give the name of a file to write", subject,
                      S_ISDIR(output.status.st_mode) ? "directory" : "device or pipe, and cannot be replaced"));
    const Path target = std::filesystem::read_symlink(output.path, problem);
    if (problem) return file_error(given, "is a link that cannot be read", problem.value());
    output.path = target.is_absolute() ? target : folder / target;
  }
  return error(Code::kInvalid, fmt::format("{}: its symbolic links lead in a circle; give the name of a file to write",
                                           given.string()));
}

// True if no process writes it any more. The lock says so across containers that share a folder, where ids of
// processes mean nothing; a file system without locks leaves it to the id.
bool abandoned(const Path& path, pid_t writer) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return false;
  if (writer != ::getpid() && (::kill(writer, 0) == 0 || errno != ESRCH)) return false;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool free = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  ::close(descriptor);
  return free;
}

// Removes what processes left that died amid writing `path`.
void remove_leftovers(const Path& path) {
  const std::string beginning = path.filename().string() + std::string(kMark);
  std::error_code problem;
  const Path parent = path.has_parent_path() ? path.parent_path() : Path(".");
  for (std::filesystem::directory_iterator it(parent, problem), end; !problem && it != end; it.increment(problem)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(beginning)) continue;
    pid_t writer = 0;
    const char* last = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + beginning.size(), last, writer);
    if (parsed.ec != std::errc() || parsed.ptr != last || writer <= 0) continue;
    if (abandoned(it->path(), writer)) ::unlink(it->path().c_str());
  }
}

}  // namespace

void remove_unfinished_files() noexcept {
  for (Unfinished& file : g_unfinished)
    if (file.state.load() == Unfinished::kSet) ::unlink(file.path);
}

Result<> check_output_file(const Path& path) {
  BOLIDE_TRY(const Output output, resolve_output(path));
  const Path folder = output.path.has_parent_path() ? output.path.parent_path() : Path(".");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return file_error(path, "cannot be created", errno);
  return {};
}

Result<AtomicFile> AtomicFile::create(const Path& path) {
  BOLIDE_TRY(const Output output, resolve_output(path));
  remove_leftovers(output.path);
  AtomicFile file;
  file.path_ = output.path;
  file.temporary_ = output.path;
  file.temporary_ += fmt::format("{}{}", kMark, ::getpid());
  const mode_t mode = output.exists ? output.status.st_mode & 0777 : 0644;
  const int descriptor = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (descriptor < 0 && errno == ENOENT) return no_folder(path);
  if (descriptor < 0) return file_error(errno == EEXIST ? file.temporary_ : path, "cannot be created", errno);
  file.descriptor_ = descriptor;
  file.unfinished_ = remember_unfinished(file.temporary_);
  (void)::flock(descriptor, LOCK_EX | LOCK_NB);  // says to others that it is being written, until it is closed
  // The mode exactly, whatever the umask is.
  if (output.exists && ::fchmod(descriptor, mode) != 0) return file_error(path, "cannot be given its mode", errno);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      unfinished_(std::exchange(other.unfinished_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(descriptor_);
  forget_unfinished(unfinished_);
}

Result<> AtomicFile::append(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path_, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<> AtomicFile::commit() {
  if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)
    return file_error(path_, "cannot be written", errno);
  ::close(std::exchange(descriptor_, -1));
  forget_unfinished(std::exchange(unfinished_, -1));
  return {};
}

Result<> write_file_atomically(const Path& path, Bytes contents) {
  BOLIDE_TRY(AtomicFile file, AtomicFile::create(path));
  BOLIDE_TRY(file.append(contents));
  return file.commit();
}

}  // namespace bolide
