// `bolide batch` over a real, tiny model, as a process that is ended in every way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/file.h"
#include "cli/batch_progress.h"
#include "cli/cli.h"
#include "formats/test_files.h"

namespace bolide::cli {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

const std::string kModel = std::string(BOLIDE_SOURCE_DIR) + "/tests/golden/models/qwen2";

class BatchProcess {
 public:
  // What it writes goes to "stdout" and "stderr" of the folder.
  BatchProcess(const Path& folder, std::vector<std::string> words) : folder_(folder) {
    words.insert(words.begin(), {"bolide", "batch"});
    words.insert(words.end(),
                 {"--threads", "1", "--context", "160", "--device", "cpu", "--max-sequences", "4", "--deterministic"});
    std::fflush(nullptr);
    child_ = ::fork();
    if (child_ != 0) return;
    for (const auto& [stream, name] : {std::pair{STDOUT_FILENO, "stdout"}, {STDERR_FILENO, "stderr"}})
      ::dup2(::open((folder / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), stream);
    ::signal(SIGINT, SIG_DFL);  // shells have it ignored in what they run in the background
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    ::_exit(run_program(static_cast<int>(argv.size()), argv.data(), Version{}));
  }
  BatchProcess(const BatchProcess&) = delete;
  BatchProcess& operator=(const BatchProcess&) = delete;
  ~BatchProcess() {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) wait();
  }

  void signal(int number) const { ::kill(child_, number); }
  bool runs() {
    if (child_ > 0 && ::waitpid(child_, &status_, WNOHANG) == child_) child_ = -1;
    return child_ > 0;
  }
  // The exit code, or 1000 and the signal.
  int wait() {
    if (child_ > 0) ::waitpid(std::exchange(child_, -1), &status_, 0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }
  std::string out() const { return *read_file(folder_ / "stdout"); }
  std::string err() const { return *read_file(folder_ / "stderr"); }

 private:
  const Path folder_;
  pid_t child_ = -1;
  int status_ = 0;
};

std::string request(const std::string& id, const Json& more = Json::object()) {
  Json body = {{"prompt", {1, 2, 3}}, {"max_tokens", 4}, {"temperature", 0}, {"ignore_eos", true}};
  body.update(more);
  return Json{{"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", body}}.dump() + "\n";
}

std::string random_requests(size_t count, size_t tokens, std::mt19937& random) {
  std::string file;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> prompt(1 + random() % 20);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 200);
    file += request("request-" + std::to_string(i), {{"prompt", prompt}, {"max_tokens", tokens + random() % 30}});
  }
  return file;
}

// Each custom_id's text; checks that each line is whole and each is there once.
std::map<std::string, std::string> texts_in(const Path& path) {
  std::map<std::string, std::string> texts;
  std::istringstream lines(*read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << line;
    if (json.is_discarded()) continue;
    EXPECT_EQ(json["response"]["status_code"], 200) << line;
    EXPECT_TRUE(texts.emplace(json["custom_id"], json["response"]["body"]["choices"][0]["text"]).second) << line;
  }
  return texts;
}

uintmax_t size_of(const Path& path) {
  std::error_code none;
  const uintmax_t size = std::filesystem::file_size(path, none);
  return none ? 0 : size;
}

// Until the output has grown by so much, or the process has ended.
void wait_for_growth(BatchProcess& process, const Path& path, uintmax_t bytes) {
  const uintmax_t before = size_of(path);
  while (process.runs() && size_of(path) < before + bytes) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

TEST(BatchCommand, KilledTwentyTimesItAnswersEachOnce) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const test::TemporaryFolder folder;
  const Path requests = folder.write("requests.jsonl", random_requests(400, 30, random));
  const Path whole = folder.path() / "whole.jsonl", killed = folder.path() / "killed.jsonl";
  BatchProcess at_once(folder.path(), {requests, kModel, "-o", whole});
  ASSERT_EQ(at_once.wait(), 0) << at_once.err();
  int kills = 0;
  for (int i = 0; i < 20; ++i) {
    BatchProcess process(folder.path(), {requests, kModel, "-o", killed});
    wait_for_growth(process, killed, random() % 2500);
    kills += process.runs() ? 1 : 0;
    process.signal(SIGKILL);
    process.wait();
  }
  EXPECT_GE(kills, 10) << "the others were over before";
  BatchProcess last(folder.path(), {requests, kModel, "-o", killed});
  EXPECT_EQ(last.wait(), 0) << last.err();
  const auto texts = texts_in(killed);
  EXPECT_EQ(texts.size(), 400u);
  EXPECT_EQ(texts, texts_in(whole));
}

TEST(BatchCommand, TheFirstInterruptLetsRunningOnesEnd) {
  std::mt19937 random(7);
  const test::TemporaryFolder folder;
  const Path requests = folder.write("requests.jsonl", random_requests(2000, 100, random));
  const Path answers = folder.path() / "answers.jsonl";
  {
    BatchProcess process(folder.path(), {requests, kModel, "-o", answers});
    wait_for_growth(process, answers, 1);
    process.signal(SIGINT);
    EXPECT_EQ(process.wait(), 1000 + SIGINT) << "a shell's loop ends too";
    EXPECT_NE(process.err().find("running requests have 30 s"), std::string::npos) << process.err();
    EXPECT_NE(process.err().find("the same command goes on"), std::string::npos) << process.err();
  }
  const size_t first = texts_in(answers).size();
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, 2000u);
  {
    BatchProcess process(folder.path(), {requests, kModel, "-o", answers, "--drain-seconds", "0"});
    wait_for_growth(process, answers, 1);
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 1000 + SIGTERM) << process.err();
  }
  EXPECT_GE(texts_in(answers).size(), first);
}

TEST(BatchCommand, FailuresAreInTheFileAndInTheExitCode) {
  const test::TemporaryFolder folder;
  const Path requests = folder.write("requests.jsonl", request("a") + request("b", {{"n", 0}}) + request("c"));
  const Path answers = folder.path() / "answers.jsonl";
  for (const bool retry : {false, false, true}) {
    std::vector<std::string> words = {requests, kModel, "-o", answers, "--json"};
    if (retry) words.emplace_back("--retry-errors");
    BatchProcess process(folder.path(), words);
    EXPECT_EQ(process.wait(), 3) << process.err();
    const Json summary = Json::parse(process.out());
    EXPECT_EQ(summary["requests"], 3);
    EXPECT_EQ(summary["answered"], 2);
    EXPECT_EQ(summary["failed"], 1);
    EXPECT_EQ(summary["left"], 0);
  }
  std::istringstream lines(*read_file(answers));
  int failures = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json["error"].is_null()) continue;
    ++failures;
    EXPECT_EQ(json["custom_id"], "b");
    EXPECT_EQ(json["response"]["status_code"], 400);
    EXPECT_EQ(json["error"]["message"], "n: must be a whole number from 1 to 16");
  }
  EXPECT_EQ(failures, 1);
}

TEST(BatchCommand, WhatCannotBeMeantIsRefusedBeforeTheModelIsRead) {
  const test::TemporaryFolder folder;
  const Path answers = folder.path() / "answers.jsonl";
  const auto refused = [&](const std::string& content, const std::string& model, const std::string& says) {
    const Path requests = folder.write("requests.jsonl", content);
    BatchProcess process(folder.path(), {requests, model, "-o", answers});
    EXPECT_EQ(process.wait(), 1);
    EXPECT_NE(process.err().find(says), std::string::npos) << process.err();
    EXPECT_FALSE(std::filesystem::exists(answers)) << says;
  };
  refused(request("a") + request("b", {{"model", "gpt"}}), "small=/no/such",
          "requests.jsonl:2: body.model: is \"gpt\", but there is small; gpt=MODEL calls one so");
  refused(request("a") + request("a"), "/no/such", "requests.jsonl:2: custom_id \"a\" is that of line 1 too");
  refused("{", "/no/such", "requests.jsonl:1: is no valid JSON");
  refused(request("a"), "/no/such.onnx", "/no/such.onnx: an ONNX model has no completions");
  const Path same = folder.write("same.jsonl", request("a"));
  BatchProcess process(folder.path(), {same, "/no/such", "-o", same});
  EXPECT_EQ(process.wait(), 1);
  EXPECT_NE(process.err().find("is the file of the requests"), std::string::npos) << process.err();
  EXPECT_EQ(*read_file(same), request("a"));
}

TEST(BatchCommand, SaysHowFarItIs) {
  BatchTotals totals{.requests = 100, .answered_before = 20, .failed_before = 1};
  server::BatchCounts counts{
      .answered = 29, .failed = 1, .prompt_tokens = 50, .completion_tokens = 150, .under_way = 8};
  EXPECT_EQ(progress_text(totals, counts, 600, 60),
            "[##########----------] 50 of 100, 2 failed, 10 tokens/s, 1 min 40 s left");
  EXPECT_EQ(progress_text({}, {}, 0, 0), "[####################] 0 of 0, 0 tokens/s");
  EXPECT_EQ(
      summary_text(totals, counts, 10),
      "100 requests: 48 answered, 2 failed (20 by earlier runs); prompts 50 tokens, answers 150 tokens in 10.0 s: "
      "20.0 tokens/s, 15.0 of answers");
  const Json json = Json::parse(summary_json(totals, counts, 10));
  EXPECT_EQ(json["left"], 50);
  EXPECT_EQ(json["tokens_per_second"], 20.0);
}

}  // namespace
}  // namespace bolide::cli
