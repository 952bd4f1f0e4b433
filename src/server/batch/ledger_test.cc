#include "server/batch/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>
#include <thread>

#include "base/file.h"
#include "formats/test_files.h"
#include "server/batch/batch_line.h"
#include "server/openai_response.h"

namespace bolide::server {
namespace {

using Path = std::filesystem::path;
using Opened = Result<std::unique_ptr<Ledger>>;

Opened open_ledger(const Path& path, IdTable* ids, bool retry_errors = false) {
  return Ledger::open(path, {retry_errors}, ids, [](uint64_t) {});
}

std::string answered(const std::string& id) { return write_answer_line(id, {200, {}, R"({"text":"of )" + id + "\"}"}); }
std::string failed(const std::string& id) { return write_answer_line(id, error_response(error(Code::kInvalid, "no"))); }

void expect_refused(const Opened& opened, const std::string& says) {
  ASSERT_FALSE(opened.has_value());
  EXPECT_NE(opened.error().text.find(says), std::string::npos) << opened.error().text;
}

// Wherever a process was ended while it wrote, what is whole stays and the rest goes.
TEST(Ledger, AnUnfinishedLineIsCutOff) {
  const test::TemporaryFolder folder;
  const std::string before = answered("a") + failed("b"), last = answered("c");
  for (size_t bytes = 0; bytes <= last.size(); ++bytes) {
    const Path path = folder.write("out", before + last.substr(0, bytes));
    IdTable ids;
    const bool whole = bytes == last.size();
    {
      const Opened ledger = open_ledger(path, &ids);
      ASSERT_TRUE(ledger.has_value()) << bytes << ": " << ledger.error().text;
      EXPECT_EQ((*ledger)->cut_bytes(), whole ? 0 : bytes);
      EXPECT_EQ(ids.mark("a", 0), IdTable::kAnswered);
      EXPECT_EQ(ids.mark("b", 0), IdTable::kAnswered | IdTable::kFailed);
      EXPECT_EQ(ids.mark("c", 0), whole ? IdTable::kAnswered : 0);
      EXPECT_EQ(*read_file(path), whole ? before + last : before);
      ASSERT_TRUE((*ledger)->append(answered("d")).has_value());
      ASSERT_TRUE((*ledger)->sync().has_value());
    }
    EXPECT_EQ(*read_file(path), (whole ? before + last : before) + answered("d"));
  }
}

TEST(Ledger, WhatALossOfPowerLeavesEmptyIsCutOff) {
  const test::TemporaryFolder folder;
  const std::string before = answered("a");
  std::string holed = answered("b");
  holed.replace(holed.size() / 2, 5, 5, '\0');
  for (const std::string& rest : {std::string(4096, '\0'), holed + answered("c"), std::string(10, '\0') + "\n"}) {
    const Path path = folder.write("out", before + rest);
    IdTable ids;
    const Opened ledger = open_ledger(path, &ids);
    ASSERT_TRUE(ledger.has_value()) << ledger.error().text;
    EXPECT_EQ(*read_file(path), before);
    EXPECT_EQ(ids.mark("b", 0) | ids.mark("c", 0), 0u);
  }
}

TEST(Ledger, FilesOfOthersStayAsTheyAre) {
  const test::TemporaryFolder folder;
  const std::pair<std::string, std::string> cases[] = {
      {"years of work", ":1: is no answer of a batch"},
      {"years of work\n", ":1: is no answer of a batch"},
      {answered("a") + "{}\n", ":2: is no answer of a batch (custom_id: is required)"},
      {answered("a") + "more", ":2: is no answer of a batch"},
      {std::string(100, '\0'), ":1: is no answer of a batch"},
      {answered("a") + failed("b") + answered("a"), ":3: custom_id \"a\" has an answer in an earlier line"},
  };
  for (const auto& [content, says] : cases)
    for (const bool retry : {false, true}) {
      const Path path = folder.write("out", content);
      IdTable ids;
      expect_refused(open_ledger(path, &ids, retry), says);
      EXPECT_EQ(*read_file(path), content);
    }
  IdTable ids;
  EXPECT_FALSE(open_ledger(folder.path(), &ids).has_value());
  EXPECT_FALSE(open_ledger(folder.path() / "no" / "such", &ids).has_value());
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(open_ledger(folder.path() / "pipe", &ids).has_value());
}

TEST(Ledger, OneRunAtATimeHasIt) {
  const test::TemporaryFolder folder;
  const Path path = folder.write("out", answered("a") + failed("b"));
  IdTable ids;
  for (const bool retry : {false, true, true}) {
    const Opened first = open_ledger(path, &ids, retry);
    if (!first) GTEST_FAIL() << first.error().text;
    expect_refused(open_ledger(path, &ids), "another run writes it");
    ids = {};
  }
  EXPECT_TRUE(open_ledger(path, &ids).has_value()) << "it is free again";
}

TEST(Ledger, FailuresAreTakenOutToBeAskedAgain) {
  const test::TemporaryFolder folder;
  const Path path = folder.write("out", failed("x") + answered("a") + failed("b") + answered("c") + failed("d"));
  ::chmod(path.c_str(), 0640);
  IdTable ids;
  const Opened ledger = open_ledger(path, &ids, /*retry_errors=*/true);
  ASSERT_TRUE(ledger.has_value()) << ledger.error().text;
  EXPECT_EQ(ids.count(IdTable::kAnswered), 2u);
  EXPECT_EQ(ids.mark("b", 0), 0u);
  ASSERT_TRUE((*ledger)->append(answered("b")).has_value());
  EXPECT_EQ(*read_file(path), answered("a") + answered("c") + answered("b"));
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
}

TEST(Ledger, LinesOfManyThreadsAreWhole) {
  const test::TemporaryFolder folder;
  const Path path = folder.path() / "out";
  IdTable ids;
  {
    const Opened ledger = open_ledger(path, &ids);
    ASSERT_TRUE(ledger.has_value()) << ledger.error().text;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          const auto done = (*ledger)->append(answered(std::to_string(t) + "-" + std::to_string(i)));
          EXPECT_TRUE(done.has_value());
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  ASSERT_TRUE(open_ledger(path, &ids).has_value());
  EXPECT_EQ(ids.count(IdTable::kAnswered), 400u);
}

// A disk that is full leaves whole lines.
TEST(Ledger, WhatCannotBeWrittenLeavesNothing) {
  const test::TemporaryFolder folder;
  const Path path = folder.path() / "out";
  const std::string line = answered("a"), longer = answered(std::string(1000, 'b'));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{line.size() + 100, line.size() + 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    IdTable ids;
    const Opened ledger = open_ledger(path, &ids);
    const bool good = ledger.has_value() && (*ledger)->append(line).has_value();
    const auto failure = good ? (*ledger)->append(longer) : Result<>();
    ::_exit(good && !failure && failure.error().text.find("out: cannot be written") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*read_file(path), line);
}

}  // namespace
}  // namespace bolide::server
