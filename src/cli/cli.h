// The program: one file per subcommand, each adding itself to the parser.
#pragma once

#include "base/version.h"
#include "cli/command.h"

namespace bolide::cli {

// Parses, runs the subcommand, prints what went wrong; the exit code is 0, or 1 to 125.
int run_program(int argc, char** argv, const Version& version);

// What a subcommand ends with; `code` is the process's.
struct Outcome {
  int code = 0;
};

void add_run(const Command& app, Outcome& outcome);
void add_serve(const Command& app, Outcome& outcome, const Version& version);
void add_batch(const Command& app, Outcome& outcome, const Version& version);
void add_build(const Command& app, Outcome& outcome);
void add_inspect(const Command& app, Outcome& outcome);
void add_bench(const Command& app, Outcome& outcome, const Version& version);
void add_bench_serve(const Command& bench, Outcome& outcome, const Version& version);
void add_profile(const Command& app, Outcome& outcome, const Version& version);
void add_tune(const Command& app, Outcome& outcome);
void add_eval(const Command& app, Outcome& outcome);
void add_synth(const Command& app, Outcome& outcome);
void add_conformance(const Command& app, Outcome& outcome);
void add_compare(const Command& app, Outcome& outcome);
void add_doctor(const Command& app, Outcome& outcome);
void add_zoo(const Command& app, Outcome& outcome);
void add_completion(CLI::App& app);  // which it describes

}  // namespace bolide::cli
