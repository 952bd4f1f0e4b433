#include "cli/completion.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/cli.h"
#include "synth/architectures.h"

namespace bolide::cli {
namespace {

// The program's own commands.
void add_all(CLI::App& app, Outcome& outcome) {
  app.set_version_flag("--version", "1");
  const Command program(app);
  add_run(program, outcome);
  add_inspect(program, outcome);
  add_eval(program, outcome);
  add_synth(program, outcome);
  add_completion(app);
}

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  ::pclose(pipe);
  return out;
}

class Completion : public ::testing::Test {
 protected:
  Completion() : app_("test", "bolide") {
    add_all(app_, outcome_);
    folder_ = std::filesystem::temp_directory_path() / ("bolide_completion." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~Completion() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(Shell shell) {
    const auto path = folder_ / "script";
    std::ofstream(path) << completion_script(app_, shell);
    return path;
  }

  // What bash offers for these words, the last of which is being typed.
  std::set<std::string> bash(const std::vector<std::string>& words) {
    std::string line = "source '" + write(Shell::kBash).string() + "'; COMP_WORDS=(bolide";
    for (const std::string& word : words) line += " '" + word + "'";
    line += "); COMP_CWORD=" + std::to_string(words.size()) + "; _bolide; printf '%s\\n' \"${COMPREPLY[@]}\"";
    const auto path = folder_ / "ask";
    std::ofstream(path) << line << "\n";
    std::set<std::string> offered;
    const std::string out = output_of("bash --norc --noprofile '" + path.string() + "' 2>&1");
    for (size_t at = 0; at < out.size();) {
      const size_t end = std::min(out.find('\n', at), out.size());
      if (end > at) offered.insert(out.substr(at, end - at));
      at = end + 1;
    }
    return offered;
  }

  CLI::App app_;
  Outcome outcome_;
  std::filesystem::path folder_;
};

using Words = std::set<std::string>;

TEST_F(Completion, BashOffersWhatTheParserHas) {
  if (!has_program("bash")) GTEST_SKIP() << "bash is not installed";
  EXPECT_EQ(bash({""}), (Words{"run", "inspect", "eval", "synth", "completion"}));
  EXPECT_EQ(bash({"ins"}), Words{"inspect"});
  EXPECT_EQ(bash({"run", "model.gguf", "--kv-type", ""}), (Words{"bf16", "f32", "fp8"}));
  EXPECT_EQ(bash({"run", "model.gguf", "--kv-type", "=", "b"}), Words{"bf16"});
  EXPECT_EQ(bash({"run", "model.gguf", "--isa", "av"}), (Words{"avx2", "avx512"}));
  EXPECT_EQ(bash({"completion", ""}), (Words{"bash", "zsh", "fish"}));
  Words architecture_names, type_names;
  for (const Architecture& architecture : architectures()) architecture_names.emplace(architecture.name);
  for (const SynthType& type : synth_types()) type_names.emplace(type.name);
  EXPECT_EQ(bash({"synth", ""}), architecture_names);
  EXPECT_EQ(bash({"synth", "llama-3-8b", "--dtype", ""}), type_names);
  // File names are readline's: nothing of ours stands in their way.
  EXPECT_EQ(bash({"run", ""}), Words{});
  EXPECT_EQ(bash({"run", "model.gguf", "--prompt", ""}), Words{});
  // Every flag of every command, and no other.
  for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) {
    Words flags;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.insert("--" + name);
      for (const std::string& name : option->get_snames()) flags.insert("-" + name);
    }
    EXPECT_EQ(bash({command->get_name(), "-"}), flags) << command->get_name();
  }
  // Commands below commands.
  const CLI::App* eval = app_.get_subcommand("eval");
  for (const CLI::App* below : eval->get_subcommands([](const CLI::App*) { return true; })) {
    EXPECT_TRUE(bash({"eval", ""}).contains(below->get_name()));
    EXPECT_TRUE(bash({"eval", below->get_name(), "--"}).contains("--help"));
  }
}

TEST_F(Completion, ScriptsAreSound) {
  for (const auto& [shell, name] : {std::pair{Shell::kBash, "bash"}, {Shell::kZsh, "zsh"}, {Shell::kFish, "fish"}}) {
    const std::string script = completion_script(app_, shell);
    for (const char* word : {"perplexity", "kv-type", "bf16", "deterministic"})
      EXPECT_NE(script.find(word), std::string::npos) << name << " " << word;
    if (has_program(name))
      EXPECT_EQ(output_of(std::string(name) + " -n '" + write(shell).string() + "' 2>&1"), "") << name;
    else
      std::printf("%s is not installed: its script was not parsed\n", name);
  }
}

}  // namespace
}  // namespace bolide::cli
