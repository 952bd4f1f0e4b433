// Flags: option tables (base/options.h) on the command line, and the configuration that commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>

#include "app/model_flags.h"
#include "base/options.h"

namespace bolide::cli {

// One flag a row; --help shows sentence, range and default. `groups` them under a heading.
void add_options(CLI::App& app, std::span<const BoundOption> options, const std::string& group = "Options");

// True if the flag of this row was on the command line.
bool given(const CLI::App& app, std::string_view option_name);

// One line on standard error, with nothing in it that a terminal would obey.
void print_error(std::string_view text);

// The common end of every command: prints the error, two lines at most, and gives the exit code (1 to 125).
int report(const Error& failure);

// Opens a model and shows how its weights are packed.
Result<Model> open_with_progress(const std::string& path, const ModelOptions& options,
                                 const OutlineCheck* check = nullptr);

// How far long work is, on standard error: on a terminal a line that each call replaces, elsewhere (a log) a line of
// its own, every ten seconds at most, so that short work is silent there.
class ProgressLine {
 public:
  ~ProgressLine() { clear(); }
  void show(std::string_view text);
  void clear();

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  bool shown_ = false;  // on a terminal
};

// True if this stream is a terminal: colours and progress go there only.
bool is_terminal(int descriptor);

}  // namespace bolide::cli
