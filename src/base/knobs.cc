#include "base/knobs.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace bolide {
namespace {

std::string variable_name(std::string_view name) {
  std::string variable = "BOLIDE_" + std::string(name);
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return variable;
}

}  // namespace

Result<Knobs> read_knobs() {
  return read_knobs([](const char* variable) -> const char* { return std::getenv(variable); });
}

Result<Knobs> read_knobs(FunctionRef<const char*(const char* variable)> environment) {
  Knobs knobs;
  for (BoundOption& option : bind_options(knobs, kKnobs)) {
    const std::string variable = variable_name(option.name);
    option.name = variable;  // errors then name the variable
    if (const char* text = environment(variable.c_str())) BOLIDE_TRY(set_option(option, text));
  }
  return knobs;
}

bool escapes_wanted() {
  return escapes_wanted([](const char* variable) -> const char* { return std::getenv(variable); });
}

bool escapes_wanted(FunctionRef<const char*(const char* variable)> environment) {
  const char* term = environment("TERM");
  const char* no_color = environment("NO_COLOR");
  return (term == nullptr || std::string_view(term) != "dumb") && (no_color == nullptr || *no_color == '\0');
}

std::filesystem::path user_cache_folder() {
  const auto absolute = [](const char* variable) {
    const char* text = std::getenv(variable);
    const std::filesystem::path path = text == nullptr ? "" : text;
    return path.is_absolute() ? path : std::filesystem::path();
  };
  if (const auto cache = absolute("XDG_CACHE_HOME"); !cache.empty()) return cache;
  const auto home = absolute("HOME");
  return home.empty() ? home : home / ".cache";
}

std::vector<std::filesystem::path> folders_of(const char* variable) {
  std::vector<std::filesystem::path> folders;
  const char* text = std::getenv(variable);
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (!folder.empty()) folders.emplace_back(folder);
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  return folders;
}

std::string list_knobs(const Knobs& knobs) {
  Knobs copy = knobs;
  std::vector<BoundOption> options = bind_options(copy, kKnobs);
  std::vector<std::string> variables;
  variables.reserve(options.size());
  for (BoundOption& option : options) option.name = variables.emplace_back(variable_name(option.name));
  return list_options(options);
}

}  // namespace bolide
