// Command: one command of the program, with its arguments. Nothing here names the library that reads the command line:
// its header takes longer to compile than most commands.
//
// Thread rules: one thread. A Command is a name for what the program's parser owns; copies are the same command.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
class Option;
}  // namespace CLI

namespace bolide::cli {

// One argument while it is described.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}
  const Argument& required() const;
  const Argument& take_last() const;  // of several, the last counts
  const Argument& repeated() const;   // one value each time it is given
  const Argument& group(const std::string& heading) const;
  const Argument& type_name(const std::string& name) const;
  const Argument& one_of(std::vector<std::string> values) const;

 private:
  CLI::Option* option_;
};

class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command add_command(const std::string& name, const std::string& description) const;
  // The first word behind it must be one of its commands.
  void require_command() const;
  // Flags of the commands above are unknown here.
  void keep_to_itself() const;

  // "--flag" or the name of a word without one. The values must live as long as the parser.
  Argument add_option(const std::string& name, std::string& value, const std::string& help) const;
  Argument add_option(const std::string& name, std::vector<std::string>& values, const std::string& help) const;
  Argument add_flag(const std::string& name, bool& value, const std::string& help) const;
  // One flag a row; --help shows sentence, range and default. `group` is their heading.
  void add_options(std::span<const BoundOption> options, const std::string& group = "Options") const;

  void footer(const std::string& text) const;
  // What the command does, once it was parsed.
  void callback(std::function<void()> run) const;

  // True if one of its commands was given.
  bool below_given() const;
  // How often the flag was given.
  size_t count(const std::string& flag) const;
  // True if the flag of this row was given.
  bool given(std::string_view option_name) const;

 private:
  CLI::App* app_;
};

}  // namespace bolide::cli
