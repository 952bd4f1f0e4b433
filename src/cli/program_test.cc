// What a user sees who types something wrong, or whose disk is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/cli.h"

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
  EXPECT_NE(said.err.find("standard output cannot be written"), std::string::npos) << said.err;
}

}  // namespace
}  // namespace bolide::cli
