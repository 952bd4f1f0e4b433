#include "server/batch/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/bytes.h"
#include "base/file.h"
#include "server/batch/batch_line.h"
#include "server/batch/line_file.h"

namespace bolide::server {
namespace {

constexpr size_t kAnswerBytesMax = size_t{2} << 30;  // many choices with the log-probabilities of a long answer

// True if this is what is left of a line whose writer was killed, or whose blocks a loss of power has left empty. Only
// what is sure to be ours may be cut off: our own beginning, or zeros behind lines of ours.
bool is_torn(const LineFile::Line& line) {
  const bool torn = !line.ended || line.text.find('\0') != std::string_view::npos;
  const bool ours = line.text.starts_with(kAnswerLineBegin) || kAnswerLineBegin.starts_with(line.text) ||
                    (line.number > 1 && line.text.starts_with('\0'));
  return torn && ours;
}

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::open(const std::filesystem::path& path, const Options& options, IdTable* ids,
                                             FunctionRef<void(uint64_t)> looking) {
  BOLIDE_TRY(check_output_file(path));
  std::unique_ptr<Ledger> ledger(new Ledger(path));
  BOLIDE_TRY(ledger->lock());
  bool any_left_out = false;
  BOLIDE_TRY(ledger->read(options, ids, looking, &any_left_out));
  if (any_left_out) {
    BOLIDE_TRY(ledger->drop_failed());
  }
  return ledger;
}

Ledger::~Ledger() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// The file that was opened may not be the one of this name any more once it is locked: drop_failed replaces it.
Result<> Ledger::lock() {
  for (int attempt = 0; attempt < 10; ++attempt) {
    bool moved = false;
    BOLIDE_TRY(lock_once(&moved));
    if (!moved) return {};
  }
  return error(Code::kUnavailable, fmt::format("{}: others keep replacing it", path_.string()));
}

Result<> Ledger::lock_once(bool* moved) {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor_ < 0) return file_error(path_, "cannot be opened", errno);
  struct stat opened{}, named{};
  if (::fstat(descriptor_, &opened) != 0) return file_error(path_, "cannot be examined", errno);
  if (!S_ISREG(opened.st_mode))
    return error(Code::kInvalid, fmt::format("{}: is not a regular file; answers are read again when the batch goes "
                                             "on: give the name of a file",
                                             path_.string()));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return file_error(path_, "cannot be locked", errno);
    return error(Code::kUnavailable,
                 fmt::format("{}: another run writes it; wait for its end, or give another name", path_.string()));
  }
  *moved = ::stat(path_.c_str(), &named) != 0 || named.st_ino != opened.st_ino || named.st_dev != opened.st_dev;
  return {};
}

Result<> Ledger::read(const Options& options, IdTable* ids, FunctionRef<void(uint64_t)> looking, bool* any_left_out) {
  BOLIDE_TRY(LineFile file, LineFile::open(path_, kAnswerBytesMax));
  while (true) {
    BOLIDE_TRY(const std::optional<LineFile::Line> line, file.next());
    if (!line) return {};
    if (is_torn(*line)) return cut(line->begin);
    const auto answer =
        line->ended ? parse_answer_line(line->text) : Result<BatchAnswer>(error(Code::kInvalid, "the line has no end"));
    if (!answer)
      return error(Code::kInvalid, fmt::format("{}: is no answer of a batch ({}); give another name for the output",
                                               file.at(*line), answer.error().text));
    bytes_ = line->begin + line->text.size() + 1;
    looking(line->number);
    if (!answer->answered && options.retry_errors) {
      *any_left_out = true;
      continue;
    }
    const uint64_t marks = answer->answered ? IdTable::kAnswered : IdTable::kAnswered | IdTable::kFailed;
    if ((ids->mark(answer->custom_id, marks) & IdTable::kAnswered) != 0)
      return error(Code::kInvalid,
                   fmt::format("{}: custom_id \"{:.200}\" has an answer in an earlier line; remove one of them",
                               file.at(*line), answer->custom_id));
  }
}

Result<> Ledger::cut(uint64_t bytes) {
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) return file_error(path_, "cannot be shortened", errno);
  cut_bytes_ = static_cast<uint64_t>(end) - bytes;
  bytes_ = bytes;
  return {};
}

// Replaces the file by one without them, at once: a process that is killed meanwhile leaves the one or the other.
Result<> Ledger::drop_failed() {
  {
    BOLIDE_TRY(LineFile file, LineFile::open(path_, kAnswerBytesMax));
    BOLIDE_TRY(AtomicFile kept, AtomicFile::create(path_));
    bytes_ = 0;
    while (true) {
      BOLIDE_TRY(const std::optional<LineFile::Line> line, file.next());
      if (!line) break;
      BOLIDE_TRY(const BatchAnswer answer, parse_answer_line(line->text).context(file.at(*line)));
      if (!answer.answered) continue;
      const std::string text = std::string(line->text) + "\n";
      BOLIDE_TRY(kept.append(as_bytes(text)));
      bytes_ += text.size();
    }
    BOLIDE_TRY(kept.commit());
  }
  return lock();
}

Result<> Ledger::append(std::string_view line) {
  const std::lock_guard lock(mutex_);
  synced_ = false;
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = ::write(descriptor_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      (void)!::ftruncate(descriptor_, static_cast<off_t>(bytes_));  // what stays is cut off when it is opened again
      return file_error(path_, "cannot be written", reason);
    }
    rest.remove_prefix(static_cast<size_t>(n));
  }
  bytes_ += line.size();
  return {};
}

Result<> Ledger::sync() {
  {
    const std::lock_guard lock(mutex_);
    if (synced_) return {};
    synced_ = true;
  }
  if (::fdatasync(descriptor_) != 0) return file_error(path_, "cannot be written", errno);
  return {};
}

}  // namespace bolide::server
