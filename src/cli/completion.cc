#include "cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "cli/cli.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  source <(bolide completion bash)
  bolide completion zsh > "${fpath[1]}/_bolide"
  bolide completion fish > ~/.config/fish/completions/bolide.fish)";

struct Flag {
  std::vector<std::string> names;    // "--prompt", "-p"
  std::vector<std::string> choices;  // empty: anything, so file names are offered
  std::string sentence;              // first line
  bool takes_value = false;
};

struct Described {
  std::string path;                                              // "bolide eval golden"
  std::vector<std::pair<std::string, std::string>> subcommands;  // name, sentence
  std::vector<Flag> flags;
  std::vector<std::string> words;  // choices of positional arguments
  std::vector<std::string> names;  // of the commands below the program: {"eval", "golden"}
};

// "auto|f32|bf16" (option tables) or "TEXT:{bash,zsh}" (CLI11's own choices).
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  std::string list;
  char separator = '|';
  if (open != std::string::npos && close != std::string::npos && close > open) {
    list = type.substr(open + 1, close - open - 1), separator = ',';
  } else if (type.find('|') != std::string::npos) {
    list = type;
  }
  std::vector<std::string> choices;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(separator, at), list.size());
    if (end > at) choices.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void collect(const CLI::App& app, const std::string& path, const std::vector<std::string>& names,
             std::vector<Described>* out) {
  Described command{path, {}, {}, {}, names};
  for (const CLI::Option* option : app.get_options()) {
    Flag flag;
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    flag.takes_value = option->get_items_expected_max() > 0;
    if (flag.takes_value) flag.choices = choices_in(option->get_type_name());
    flag.sentence = first_line(option->get_description());
    if (flag.names.empty())
      command.words.insert(command.words.end(), flag.choices.begin(), flag.choices.end());
    else
      command.flags.push_back(std::move(flag));
  }
  std::vector<const CLI::App*> below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : below)
    command.subcommands.emplace_back(sub->get_name(), first_line(sub->get_description()));
  out->push_back(std::move(command));
  for (const CLI::App* sub : below) {
    auto deeper = names;
    deeper.push_back(sub->get_name());
    collect(*sub, fmt::format("{} {}", path, sub->get_name()), deeper, out);
  }
}

// 'text' for bash and zsh.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// "'bolide run --kv-type'|'bolide run -k'": a pattern of case.
std::string pattern(const Described& command, const Flag& flag) {
  std::string out;
  for (const std::string& name : flag.names) out += (out.empty() ? "" : "|") + shell_quoted(command.path + " " + name);
  return out;
}

// The lines of `case` that walk down to the command the cursor is in; `$where` is its path.
std::string walk(const std::vector<Described>& commands) {
  std::string patterns;
  for (const Described& command : commands)
    for (const auto& [name, sentence] : command.subcommands)
      patterns += (patterns.empty() ? "" : "|") + shell_quoted(command.path + " " + name);
  return fmt::format("    case \"$where $word\" in\n      {}) where=\"$where $word\" ;;\n    esac\n", patterns);
}

std::string bash_script(const std::vector<Described>& commands) {
  std::string out =
      "# bash completion of bolide: source <(bolide completion bash)\n_bolide() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" where=bolide word\n"
      "  # bash takes --flag=value apart.\n"
      "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n";
  out += walk(commands) + "  done\n  COMPREPLY=()\n  case \"$where $prev\" in\n";
  std::string anything;
  for (const Described& command : commands)
    for (const Flag& flag : command.flags) {
      if (!flag.takes_value) continue;
      if (flag.choices.empty())
        anything += (anything.empty() ? "" : "|") + pattern(command, flag);
      else
        out += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$cur\")); return ;;\n", pattern(command, flag),
                           shell_quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
    }
  if (!anything.empty()) out += fmt::format("    {}) return ;;\n", anything);
  out += "  esac\n  case \"$where\" in\n";
  for (const Described& command : commands) {
    std::vector<std::string> flags, words = command.words;
    for (const Flag& flag : command.flags) flags.insert(flags.end(), flag.names.begin(), flag.names.end());
    for (const auto& [name, sentence] : command.subcommands) words.push_back(name);
    out += fmt::format("    {})\n      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W {} -- \"$cur\"))\n",
                       shell_quoted(command.path), shell_quoted(fmt::format("{}", fmt::join(flags, " "))));
    if (!words.empty())
      out += fmt::format("      else COMPREPLY=($(compgen -W {} -- \"$cur\"))\n",
                         shell_quoted(fmt::format("{}", fmt::join(words, " "))));
    out += "      fi ;;\n";
  }
  // Nothing found: readline offers file names.
  return out + "  esac\n}\ncomplete -o default -F _bolide bolide\n";
}

std::string zsh_item(const std::string& name, const std::string& sentence) {
  std::string escaped;
  for (const char c : fmt::format("{}\n{}", name, sentence)) {
    if (c == '\n')
      escaped += ':';
    else
      escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  }
  return shell_quoted(escaped);
}

std::string zsh_script(const std::vector<Described>& commands) {
  std::string out =
      "#compdef bolide\n_bolide() {\n  local where=bolide word\n  local -a items\n"
      "  for word in \"${(@)words[2,CURRENT-1]}\"; do\n";
  out += walk(commands) + "  done\n  case \"$where ${words[CURRENT-1]}\" in\n";
  std::string anything;
  for (const Described& command : commands)
    for (const Flag& flag : command.flags) {
      if (!flag.takes_value) continue;
      if (flag.choices.empty())
        anything += (anything.empty() ? "" : "|") + pattern(command, flag);
      else
        out += fmt::format("    {}) compadd -- {}; return ;;\n", pattern(command, flag), fmt::join(flag.choices, " "));
    }
  if (!anything.empty()) out += fmt::format("    {}) _files; return ;;\n", anything);
  out += "  esac\n  case \"$where\" in\n";
  for (const Described& command : commands) {
    std::string flags, words;
    for (const Flag& flag : command.flags)
      for (const std::string& name : flag.names) flags += " " + zsh_item(name, flag.sentence);
    for (const auto& [name, sentence] : command.subcommands) words += " " + zsh_item(name, sentence);
    for (const std::string& word : command.words) words += " " + shell_quoted(word);
    out += fmt::format("    {})\n      if [[ $PREFIX == -* ]]; then items=({} ); _describe -o option items\n",
                       shell_quoted(command.path), flags);
    out +=
        words.empty() ? "      else _files\n" : fmt::format("      else items=({} ); _describe command items\n", words);
    out += "      fi ;;\n";
  }
  return out +
         "  esac\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then _bolide \"$@\"; else compdef _bolide bolide; "
         "fi\n";
}

std::string fish_script(const std::vector<Described>& commands) {
  std::string out = "# fish completion of bolide: bolide completion fish > ~/.config/fish/completions/bolide.fish\n";
  for (const Described& command : commands) {
    std::string condition = command.names.empty() ? "__fish_use_subcommand" : "";
    for (const std::string& name : command.names)
      condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + name);
    std::string here = condition;  // and no deeper
    if (!command.names.empty() && !command.subcommands.empty()) {
      here += "; and not __fish_seen_subcommand_from";
      for (const auto& [name, sentence] : command.subcommands) here += " " + name;
    }
    for (const auto& [name, sentence] : command.subcommands)
      out += fmt::format("complete -c bolide -n {} -f -a {} -d {}\n", fish_quoted(here), name, fish_quoted(sentence));
    for (const std::string& word : command.words)
      out += fmt::format("complete -c bolide -n {} -f -a {}\n", fish_quoted(here), word);
    for (const Flag& flag : command.flags) {
      out += fmt::format("complete -c bolide -n {}", fish_quoted(condition));
      for (const std::string& name : flag.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (flag.takes_value)
        out += flag.choices.empty()
                   ? std::string(" -r")
                   : fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
      out += fmt::format(" -d {}\n", fish_quoted(flag.sentence));
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& program, Shell shell) {
  std::vector<Described> commands;
  collect(program, "bolide", {}, &commands);
  switch (shell) {
    case Shell::kBash: return bash_script(commands);
    case Shell::kZsh: return zsh_script(commands);
    case Shell::kFish: return fish_script(commands);
  }
  return {};
}

void add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes commands and flags in a shell");
  auto shell = std::make_shared<std::string>();
  command->footer(kFooter);
  command->add_option("shell", *shell, "which shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    const std::string script = completion_script(app, *shell == "bash"  ? Shell::kBash
                                                      : *shell == "zsh" ? Shell::kZsh
                                                                        : Shell::kFish);
    std::fwrite(script.data(), 1, script.size(), stdout);
  });
}

}  // namespace bolide::cli
