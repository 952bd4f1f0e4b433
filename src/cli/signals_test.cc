// What signals leave behind, and what is said of a file that shrank. Each case runs in a process of its own.
#include "cli/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "base/file.h"
#include "formats/test_files.h"

namespace bolide::cli {
namespace {

struct Ended {
  int code;  // as a shell has it
  std::string err;
};

Ended in_process(const std::function<void()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return {-1, ""};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ended ended{0, ""};
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.err.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

TEST(Signals, AnEndedBuildLeavesNothingBehind) {
  const test::TemporaryFolder folder;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Ended ended = in_process([&] {
      ::signal(signal, SIG_DFL);
      handle_signals();
      auto file = AtomicFile::create(folder.path() / "engine");
      if (!file || std::filesystem::is_empty(folder.path())) ::_exit(99);
      ::raise(signal);
    });
    EXPECT_EQ(ended.code, 128 + signal);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << signal;
  }
}

TEST(Signals, WhatIsIgnoredStaysIgnored) {
  const Ended ended = in_process([] {
    ::signal(SIGHUP, SIG_IGN);  // as nohup does
    handle_signals();
    ::raise(SIGHUP);
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(Signals, AMappedFileThatShrankIsNamed) {
  const test::TemporaryFolder folder;
  for (const char* name : {"model.gguf", "mo\x1b[2Jdel.gguf"}) {
    const auto path = folder.write(name, std::string(20000, 'x'));
    const Ended ended = in_process([&] {
      handle_signals();
      const auto file = MappedFile::open(path);
      if (!file || ::truncate(path.c_str(), 100) != 0) ::_exit(99);
      // The first page is still there, with zeros behind the end; the last is not.
      const volatile std::byte* last = file->bytes().data() + 19999;
      (void)*last;
    });
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.err.find("del.gguf: a file that is in use was shortened or its medium failed\n"), std::string::npos)
        << ended.err;
    EXPECT_TRUE(ended.err.starts_with("bolide: error: " + folder.path().string())) << ended.err;
    EXPECT_EQ(ended.err.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace bolide::cli
