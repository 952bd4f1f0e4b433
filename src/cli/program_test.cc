// What a user sees who types something wrong, or whose disk is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/cli.h"
#include "formats/test_files.h"

namespace bolide::cli {
namespace {

struct Said {
  int code;
  std::string err;
};

Said run(std::vector<std::string> words) {
  words.insert(words.begin(), "bolide");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStderr();
  const int code = run_program(static_cast<int>(argv.size()), argv.data(), Version{});
  return {code, ::testing::internal::GetCapturedStderr()};
}

void expect_refused(const std::vector<std::string>& words, const std::string& says) {
  const Said said = run(words);
  EXPECT_GE(said.code, 1);
  EXPECT_LE(said.code, 125);
  EXPECT_NE(said.err.find(says), std::string::npos) << said.err;
  EXPECT_LE(std::count(said.err.begin(), said.err.end(), '\n'), 2) << said.err;
  for (const unsigned char byte : said.err) EXPECT_TRUE(byte == '\n' || byte >= 0x20) << said.err;
}

TEST(Program, NamesWhatItDoesNotKnow) {
  expect_refused({"rum", "model.gguf"}, "has no command \"rum\"; did you mean run?");
  expect_refused({"run", "m", "--tempreature", "1"}, "has no flag \"--tempreature\"; did you mean --temperature?");
  expect_refused({"run", "m", "--zzzzzzzz=\x1b[31m"}, "has no flag \"--zzzzzzzz\"");
  expect_refused({"run", "m", "another"}, "has no further argument \"another\"");
  expect_refused({"run", "m", "--", "-p", "hi"}, "has no further argument \"-p\"");
  expect_refused({"eval", "perplexty", "m", "f"}, "did you mean perplexity?");
}

TEST(Program, NamesTheFlagAndItsRange) {
  expect_refused({"run", "m", "--top-k", "-1"}, "--top-k is \"-1\"");
  expect_refused({"run", "m", "--isa", "avx9"}, "give scalar|avx2|");
  expect_refused({"run", "m", "--isa", "amx\x1b[2J"}, "\\u{1b}[2J");
}

TEST(Program, TheLastOfARepeatedFlagCounts) {
  expect_refused({"run", "/no/such/model", "--top-k", "1", "--top-k", "2", "-p", "a"}, "/no/such/model");
}

TEST(Program, RefusesFlagsThatContradictEachOther) {
  expect_refused({"run", "/no/such/model", "-p", "a", "-p", "b"}, "-p is given 2 times");
  for (const char* flag : {"--template", "--template-file", "--system", "--template-arg"})
    expect_refused({"run", "/no/such/model", "-p", "a", "--raw", flag, "x=1"}, "--raw and --");
}

TEST(Program, RefusesEmptyNamesAndTexts) {
  expect_refused({"run", ""}, "model: is empty");
  expect_refused({"inspect", ""}, "model: is empty");
  expect_refused({"build", "m", "-o", ""}, "--output: is empty");
  expect_refused({"eval", "perplexity", "m", ""}, "file: is empty");
  expect_refused({"run", "m", "-p", "hi", "--stop="}, "--stop= has no text");
  expect_refused({"run", "m", "--stop=", "-p", "hi"}, "--stop= has no text");
  expect_refused({"run", "m", "-p", "hi", "--stop", ""}, "an empty stop text is not allowed");
  expect_refused({"run", "m", "-p", "hi", "--template", ""}, "is empty");
}

TEST(Program, RefusesBiasesThatAreNone) {
  for (const char* bias : {"5", "=1", "x=1", "-1=1", "5=", "5=101", "5=-100.5", "5=nan", "5=1x", "99999999999=1"})
    expect_refused({"run", "m", "-p", "hi", "--logit-bias", bias}, "expected ID=VALUE");
  expect_refused({"run", "/no/such/model", "-p", "hi", "--logit-bias", "5=-100", "--logit-bias", "6=2.5"},
                 "/no/such/model");
  expect_refused({"run", "m", "-p", "hi", "--max-tokens", "3", "--min-tokens", "4"}, "more than --max-tokens 3");
}

TEST(Program, SaysHowLargeANumberMayBe) {
  expect_refused({"run", "m", "--seed", "18446744073709551615"}, "give an integer, 0 to 9223372036854775807");
  expect_refused({"run", "m", "--max-tokens", "2147483648"}, "give an integer, 0 to 2147483647");
  expect_refused({"inspect", "m", "--tokens-in-step", "0"}, "--tokens-in-step is \"0\"; give an integer, 1 to 65536");
}

TEST(Program, AConversationsOwnVariablesCannotBeReplaced) {
  for (const char* name : {"messages", "add_generation_prompt", "bos_token", "eos_token"})
    expect_refused({"run", "/no/such/model", "-p", "a", "--template-arg", std::string(name) + "=[]"},
                   "set this variable");
}

TEST(Program, NamesTheTemplateFileThatIsNone) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "no_template.jinja";
  for (const std::string& content :
       {std::string(), std::string(" \n"), std::string("a\0b", 3), std::string("\xff\xfe")}) {
    std::ofstream(file, std::ios::binary) << content;
    expect_refused({"run", "/no/such/model", "-p", "a", "--template", file.string()}, file.string());
  }
  std::filesystem::remove(file);
}

TEST(Program, FindsTheRequestsFaultsBeforeItLoadsTheModel) {
  expect_refused({"run", "/no/such/model", "-p", "hi", "--template", "/no/such/template"}, "/no/such/template");
  expect_refused({"run", "/no/such/model", "-p", "hi", "--template-arg", "novalue"}, "novalue");
  expect_refused({"run", "/no/such/model", "-p", "caf\xe9"}, "prompt is not valid UTF-8");
}

TEST(Program, NamesFromOutsideCannotSteerTheTerminal) {
  expect_refused({"run", "/no/\x1b[31mmodel\n", "-p", "hi"}, "\\u{1b}[31mmodel\\n");
  expect_refused({"run", "/no/" + std::string(100000, 'x'), "-p", "hi"}, "...");
}

TEST(Program, AFullDiskIsNoSuccess) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "there is no /dev/full";
  std::fflush(stdout);
  const int saved = ::dup(STDOUT_FILENO);
  ::dup2(full, STDOUT_FILENO);
  const Said said = run({"completion", "bash"});
  ::dup2(saved, STDOUT_FILENO);
  std::clearerr(stdout);
  ::close(saved);
  ::close(full);
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("standard output cannot be written: No space left on device"), std::string::npos) << said.err;
}

std::filesystem::path golden_model(const char* name) {
  return std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models" / name;
}

// A fresh process's exit code; what it says on standard error goes to `err`. `prepare` is called in it.
template <class Prepare>
int run_in_process(const std::vector<std::string>& words, const Prepare& prepare, std::string* err) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) return -1;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    prepare();
    std::vector<std::string> all = {"bolide"};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    ::_exit(run_program(static_cast<int>(argv.size()), argv.data(), Version{}));
  }
  ::close(pipe_ends[1]);
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    err->append(buffer, static_cast<size_t>(n));
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void to_full_disk() {
  const int full = ::open("/dev/full", O_WRONLY);
  ::dup2(full, STDOUT_FILENO);
}

TEST(Program, AnAnswerThatNobodyCanReadIsNoSuccess) {
  const std::string model = golden_model("llama-bias");
  const std::vector<std::string> commands[] = {
      {"run", model, "-p", "hi", "--raw", "--max-tokens", "3", "--threads", "1"},
      {"run", model, "-p", "hi", "--raw", "--max-tokens", "3", "--threads", "1", "--json"},
      {"inspect", model},
      {"completion", "bash"},
      {"--version"}};
  for (const auto& words : commands) {
    std::string err;
    EXPECT_EQ(run_in_process(words, [] { ::close(STDOUT_FILENO); }, &err), 1) << words[0];
    EXPECT_NE(err.find("standard output cannot be written: Bad file descriptor"), std::string::npos) << words[0] << err;
    err.clear();
    EXPECT_EQ(run_in_process(words, to_full_disk, &err), 1) << words[0];
    EXPECT_NE(err.find("standard output cannot be written: No space left on device"), std::string::npos)
        << words[0] << err;
  }
}

TEST(Program, ATraceReplacesOnlyATrace) {
  const test::TemporaryFolder folder;
  const auto profile = [&](const std::filesystem::path& trace, std::string model = golden_model("llama-bias")) {
    return run({"profile", std::move(model), "--prompt", "0", "--generate", "1", "--repeat", "1", "--threads", "1",
                "--json", "--trace", trace.string()});
  };
  const auto precious = folder.write("precious", "years of work");
  std::filesystem::create_symlink("precious", folder.path() / "link");
  std::filesystem::create_symlink("/dev/null", folder.path() / "null");
  for (const auto& trace : {precious, folder.path() / "link"}) {
    // Before anything else: the model is not there.
    const Said said = profile(trace, "/no/such/model");
    EXPECT_EQ(said.code, 1);
    EXPECT_NE(said.err.find("is no trace; choose another name"), std::string::npos) << said.err;
    EXPECT_EQ(*read_file(precious), "years of work");
  }
  EXPECT_NE(profile(folder.path() / "null").err.find("is in /dev"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "null"));
  // Nothing there, nothing in it, an earlier trace.
  const auto empty = folder.write("empty", "");
  for (const auto& trace : {folder.path() / "new", folder.path() / "new", empty}) {
    const Said said = profile(trace);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(read_file(trace)->starts_with(R"({"traceEvents":[{)")) << trace;
  }
}

TEST(Program, ABuildThroughALinkKeepsTheLink) {
  const test::TemporaryFolder folder;
  std::filesystem::create_symlink("target", folder.path() / "link");
  for (int i = 0; i < 2; ++i) {  // dangling, then to an engine
    const Said said =
        run({"build", golden_model("llama-bias"), "-o", (folder.path() / "link").string(), "--threads", "1"});
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link"));
    EXPECT_TRUE(std::filesystem::is_regular_file(folder.path() / "target"));
  }
}

}  // namespace
}  // namespace bolide::cli
