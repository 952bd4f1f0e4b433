// The program: one file per subcommand, each adding itself to the parser.
#pragma once

#include <CLI/CLI.hpp>

#include "base/version.h"

namespace bolide::cli {

// Parses, runs the subcommand, prints what went wrong; the exit code is 0, or 1 to 125.
int run_program(int argc, char** argv, const Version& version);

// What a subcommand ends with; `code` is the process's.
struct Outcome {
  int code = 0;
};

void add_run(CLI::App& app, Outcome& outcome);
void add_build(CLI::App& app, Outcome& outcome);
void add_inspect(CLI::App& app, Outcome& outcome);
void add_bench(CLI::App& app, Outcome& outcome, const Version& version);
void add_profile(CLI::App& app, Outcome& outcome, const Version& version);
void add_tune(CLI::App& app, Outcome& outcome);
void add_eval(CLI::App& app, Outcome& outcome);
void add_synth(CLI::App& app, Outcome& outcome);
void add_conformance(CLI::App& app, Outcome& outcome);
void add_compare(CLI::App& app, Outcome& outcome);
void add_zoo(CLI::App& app, Outcome& outcome);
void add_completion(CLI::App& app);

}  // namespace bolide::cli
