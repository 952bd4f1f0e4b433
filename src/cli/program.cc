#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <system_error>

#include "base/knobs.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/signals.h"

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

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

// The innermost command that was given.
const CLI::App& given_command(const CLI::App& app) {
  const auto below = app.get_subcommands();
  return below.empty() ? app : given_command(*below[0]);
}

// The first word that the command does not know. CLI11 itself says "a subcommand is required", or lists all that
// follow.
std::string unknown_word(const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> extras = command.remaining(), behind = app.remaining();
  if (extras.empty() && behind.empty()) return {};
  // Words behind "--" are left to the program itself, and are no flags.
  const std::string& word = extras.empty() ? behind.front() : extras.front();
  const bool flag = !extras.empty() && word.starts_with('-') && word.size() > 1;
  std::vector<std::string> known;
  if (flag) {
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  } else {
    for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(below->get_name());
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string shown = word.substr(0, std::min<size_t>(80, flag ? word.find('=') : std::string::npos));
  const std::string_view near = nearest_name(shown, names);
  const std::string_view kind = flag ? "flag" : names.empty() ? "further argument" : "command";
  return fmt::format("`{}` has no {} \"{}\"{}", path_of(command), kind, shown,
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

bool knows_flag(const CLI::App& app, const std::string& flag) {
  if (app.get_option_no_throw(flag) != nullptr) return true;
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(below.begin(), below.end(), [&](const CLI::App* command) { return knows_flag(*command, flag); });
}

// The first "--flag=" with nothing behind it: CLI11 would take the next word, which is another flag perhaps.
std::string empty_value(const CLI::App& app, std::span<char* const> words) {
  for (const std::string_view word : words) {
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') + 1 == word.size() &&
        knows_flag(app, std::string(word.substr(0, word.size() - 1))))
      return fmt::format("{} has no text behind it: an empty one is not allowed", word);
  }
  return {};
}

// Names of files, folders and models: an empty one is an error that names the argument, before any work.
void refuse_empty_names(CLI::App& app) {
  const auto is_name = [](const CLI::Option& option) {
    return option.get_positional() || option.check_name("--output") || option.check_name("--template-file") ||
           option.check_name("--text");
  };
  for (CLI::Option* option : app.get_options())
    if (is_name(*option))
      option->check([](const std::string& text) -> std::string { return text.empty() ? "is empty; give a name" : ""; });
  for (CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) refuse_empty_names(*below);
}

int report_parse_error(const CLI::App& app, const CLI::ParseError& failure) {
  const CLI::App& command = given_command(app);
  std::string text = unknown_word(app, command);
  if (text.empty()) text = failure.what();
  print_error(text);
  std::fprintf(stderr, "`%s --help` shows what there is\n", path_of(command).c_str());
  return 2;
}

// A full disk, a closed pipe or a closed stream must not look like success.
int check_output(int code) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (code != 0 || (flushed && std::ferror(stdout) == 0)) return code;
  // What failed earlier has left no reason: trying again gives it.
  if (flushed && ::write(STDOUT_FILENO, "\n", 1) == 1) errno = 0;
  print_error(fmt::format("standard output cannot be written{}{}", errno == 0 ? "" : ": ",
                          errno == 0 ? "" : std::strerror(errno)));
  return 1;
}

// A file opened where a closed standard stream was would be written to as if it were that stream. Writing to what takes
// the place of a closed standard output fails, so that a lost answer is no success.
void hold_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

int run_program(int argc, char** argv, const Version& version) {
  hold_standard_streams();
  handle_signals();
  ::signal(SIGXFSZ, SIG_IGN);  // a file grown past the user's limit is an error of that write, not the end
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
  const Command program(app);
  add_run(program, outcome);
  add_serve(program, outcome, version);
  add_batch(program, outcome, version);
  add_build(program, outcome);
  add_inspect(program, outcome);
  add_bench(program, outcome, version);
  add_profile(program, outcome, version);
  add_tune(program, outcome);
  add_conformance(program, outcome);
  add_compare(program, outcome);
  add_eval(program, outcome);
  add_synth(program, outcome);
  add_zoo(program, outcome);
  add_doctor(program, outcome);
  add_completion(app);
  refuse_empty_names(app);
  try {
    if (const std::string text = empty_value(app, std::span(argv, static_cast<size_t>(argc))); !text.empty())
      throw CLI::ValidationError(text);
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    outcome.code = app.exit(success);
  } catch (const CLI::ParseError& failure) {
    outcome.code = report_parse_error(app, failure);
  } catch (const std::system_error& failure) {  // {fmt} throws it if standard output takes no more
    print_error(fmt::format("standard output cannot be written: {}", failure.code().message()));
    outcome.code = 1;
  } catch (const std::bad_alloc&) {
    print_error(fmt::format("out of memory{}; a smaller --context or model needs less", address_limit_note()));
    outcome.code = 1;
  }
  outcome.code = check_output(outcome.code);
  log::set_sink(nullptr, log::Level::kOff);
  return outcome.code;
}

}  // namespace bolide::cli
