// What commands share: opening a model, errors, progress.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "app/model_flags.h"
#include "cli/command.h"

namespace bolide::cli {

// One line on standard error, with nothing in it that a terminal would obey.
void print_error(std::string_view text);

// The common end of every command: prints the error, two lines at most, and gives the exit code (1 to 125).
int report(const Error& failure);

// Opens a model and shows how its weights are packed.
Result<Model> open_with_progress(const std::string& path, const ModelOptions& options,
                                 const OutlineCheck* check = nullptr);

// How far long work is, on standard error: on a terminal a line that calls replace, ten times a second at most; on one
// that cannot erase a line of its own every two seconds at most, elsewhere (a log) every ten, so that short work is
// silent there.
class ProgressLine {
 public:
  // Nothing is shown before `delay` has passed.
  explicit ProgressLine(std::chrono::milliseconds delay = {}) : begin_(Clock::now() + delay) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(std::string_view text);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  std::optional<Clock::time_point> last_;
  bool shown_ = false;  // there is a line to erase
};

// How much of a prompt is computed, for work that is longer than a second.
class PromptProgress {
 public:
  void show(int32_t done, int32_t all);
  void clear() { line_.clear(); }

 private:
  ProgressLine line_{std::chrono::seconds(1)};
};

bool is_terminal(int descriptor);
// True if this stream is a terminal that may be sent escape sequences: not with TERM=dumb, nor if NO_COLOR is set.
bool can_erase(int descriptor);

}  // namespace bolide::cli
