#include "cli/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/knobs.h"
#include "base/utf8.h"

namespace bolide::cli {
namespace {

// Errors quote files, and a hostile one's names can be long.
constexpr size_t kErrorBytesMax = 1000;

}  // namespace

void print_error(std::string_view text) {
  std::string line = printable(text.substr(0, kErrorBytesMax));
  if (text.size() > kErrorBytesMax) line += "...";
  std::fprintf(stderr, "bolide: error: %s\n", line.c_str());
}

int report(const Error& failure) {
  print_error(failure.text);
  return failure.code == Code::kInternal ? 125 : 1;
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

bool can_erase(int descriptor) {
  static const bool wanted = escapes_wanted();
  return wanted && is_terminal(descriptor);
}

void ProgressLine::show(std::string_view text) {
  const std::chrono::seconds between_lines(is_terminal(STDERR_FILENO) ? 2 : 10);
  constexpr std::chrono::milliseconds kBetweenUpdates(100);
  const bool erases = can_erase(STDERR_FILENO);
  const auto now = Clock::now();
  if (now < begin_) return;
  if (erases ? last_ && now - *last_ < kBetweenUpdates : now - last_.value_or(begin_) < between_lines) return;
  last_ = now;
  const std::string line = printable(text);
  shown_ = erases;
  std::fprintf(stderr, erases ? "\r\x1b[K%s" : "%s\n", line.c_str());
}

void PromptProgress::show(int32_t done, int32_t all) {
  if (done < all) return line_.show(fmt::format("prompt: {}/{} tokens", done, all));
  line_.clear();
}

void ProgressLine::clear() {
  if (shown_) std::fprintf(stderr, "\r\x1b[K");
  shown_ = false;
}

Result<Model> open_with_progress(const std::string& path, const ModelOptions& options, const OutlineCheck* check) {
  ProgressLine line;
  const auto show = [&](PackProgress progress) {
    line.show(fmt::format("packing weights {}/{}", progress.done, progress.total));
  };
  const FunctionRef<void(PackProgress)> reference(show);
  return open_model(path, options, &reference, check);
}

}  // namespace bolide::cli
