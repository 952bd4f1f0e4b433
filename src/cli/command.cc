#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace bolide::cli {
namespace {

std::string help_text(const BoundOption& option) {
  std::string text(option.sentence);
  if (const std::string range = range_text(option); !range.empty()) text += fmt::format(" ({})", range);
  const std::string value = value_text(option);
  if (!std::holds_alternative<bool*>(option.value) && !value.empty() && value != "\"\"")
    text += fmt::format(" [{}]", value);
  return text;
}

}  // namespace

const Argument& Argument::required() const {
  option_->required();
  return *this;
}
const Argument& Argument::take_last() const {
  option_->take_last();
  return *this;
}
const Argument& Argument::repeated() const {
  option_->allow_extra_args(false);
  return *this;
}
const Argument& Argument::group(const std::string& heading) const {
  option_->group(heading);
  return *this;
}
const Argument& Argument::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}
const Argument& Argument::one_of(std::vector<std::string> values) const {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& description) const {
  return Command(*app_->add_subcommand(name, description));
}
void Command::require_command() const { app_->require_subcommand(1); }
void Command::keep_to_itself() const { app_->fallthrough(false); }

Argument Command::add_option(const std::string& name, std::string& value, const std::string& help) const {
  return Argument(app_->add_option(name, value, help));
}
Argument Command::add_option(const std::string& name, std::vector<std::string>& values, const std::string& help) const {
  return Argument(app_->add_option(name, values, help));
}
Argument Command::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Argument(app_->add_flag(name, value, help));
}

void Command::add_options(std::span<const BoundOption> options, const std::string& group) const {
  for (const BoundOption& option : options) {
    CLI::Option* flag = nullptr;
    if (const auto* value = std::get_if<bool*>(&option.value)) {
      flag = app_->add_flag(flag_name(option.name), **value, help_text(option));
    } else {
      flag = app_->add_option_function<std::string>(
          flag_name(option.name),
          [option](const std::string& text) {
            const std::string name = flag_name(option.name);
            BoundOption named = option;
            named.name = name;  // errors then name the flag as it is typed
            if (const auto set = set_option(named, text); !set) throw CLI::ValidationError(set.error().text);
          },
          help_text(option));
      flag->type_name(std::string(bolide::type_name(option)));
      flag->take_last();  // a repeated flag replaces, so that an alias's defaults can be overridden
    }
    flag->group(group);
  }
}

void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::callback(std::function<void()> run) const { app_->callback(std::move(run)); }
bool Command::below_given() const { return !app_->get_subcommands().empty(); }
size_t Command::count(const std::string& flag) const { return app_->count(flag); }
bool Command::given(std::string_view option_name) const { return app_->count(flag_name(option_name)) > 0; }

}  // namespace bolide::cli
