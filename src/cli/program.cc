#include <fmt/format.h>

#include <cstdio>

#include "base/knobs.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/flags.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide run model.gguf -p "What is a bolide?"     one answer
  bolide run model.gguf                            a conversation
  bolide bench model.gguf --prompt 512 --generate 128
  bolide inspect model.gguf --graph

`bolide COMMAND --help` has the flags and examples of each command.)";

std::string version_text(const Version& version) {
  return fmt::format("bolide {} (commit {}, {} {}{}{})\ninstruction sets: {}\ncuda: {}", version.number, version.commit,
                     version.compiler, version.build_type, version.sanitize.empty() ? "" : ", sanitizers ",
                     version.sanitize, version.isas, version.cuda);
}

}  // namespace

int run_program(int argc, char** argv, const Version& version) {
  const auto knobs = read_knobs();
  if (!knobs) return report(knobs.error());
  log::StreamSink sink(stderr, log::LineFormat::kKeyValue);
  if (const auto level = log::parse_level(knobs->log)) log::set_sink(&sink, *level);

  CLI::App app("Makes trained models answer fast, and proves it by measuring.", "bolide");
  app.footer(kFooter);
  app.set_version_flag("--version", version_text(version));
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Outcome outcome;
  add_run(app, outcome);
  add_build(app, outcome);
  add_inspect(app, outcome);
  add_bench(app, outcome, version);
  add_profile(app, outcome);
  add_eval(app, outcome);
  add_completion(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    outcome.code = app.exit(success);
  } catch (const CLI::ParseError& failure) {
    std::fprintf(stderr, "bolide: error: %s\n", failure.what());
    std::fprintf(stderr, "`bolide%s --help` shows what there is\n",
                 app.get_subcommands().empty() ? "" : (" " + app.get_subcommands()[0]->get_name()).c_str());
    outcome.code = 2;
  }
  log::set_sink(nullptr, log::Level::kOff);
  return outcome.code;
}

}  // namespace bolide::cli
