// Flags: option tables (base/options.h) on the command line, and the configuration that commands share.
#pragma once

#include <CLI/CLI.hpp>
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

// Opens a model with a progress line on a terminal.
Result<Model> open_with_progress(const std::string& path, const ModelOptions& options);

// True if this stream is a terminal: colours and progress go there only.
bool is_terminal(int descriptor);

}  // namespace bolide::cli
