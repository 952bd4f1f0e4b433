#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace bolide {
namespace {

class AvailableMemory : public ::testing::Test {
 protected:
  ~AvailableMemory() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("bolide_memory_test." + std::to_string(::getpid()));
};

TEST_F(AvailableMemory, IsTheMachinesWithoutALimit) {
  EXPECT_EQ(available_memory_bytes(root_), SIZE_MAX);
  write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    500 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(available_memory_bytes(root_), 500u * 1024);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "99999999\n");
  EXPECT_EQ(available_memory_bytes(root_), 500u * 1024);
}

TEST_F(AvailableMemory, IsNoMoreThanTheTightestGroupHasLeft) {
  write("proc/meminfo", "MemAvailable:    500 kB\n");
  write("proc/self/cgroup", "4:memory:/old\n0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "400000\n");
  write("sys/fs/cgroup/a/b/memory.current", "100000\n");
  EXPECT_EQ(available_memory_bytes(root_), 300000u);
  write("sys/fs/cgroup/a/memory.max", "250000\n");
  write("sys/fs/cgroup/a/memory.current", "220000\n");
  EXPECT_EQ(available_memory_bytes(root_), 30000u);
  // Pages of files can be given up.
  write("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 150000\ninactive_file 100000\nactive_file 50000\n");
  EXPECT_EQ(available_memory_bytes(root_), 180000u);
  // As a container sees itself; and more in use than the limit, which was lowered.
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(available_memory_bytes(root_), 0u);
}

TEST_F(AvailableMemory, SurvivesNonsense) {
  write("proc/meminfo", "MemAvailable: lots\n");
  write("proc/self/cgroup", "0::/../..\nnonsense\n0::\n");
  write("sys/fs/cgroup/memory.max", "-\n");
  EXPECT_EQ(available_memory_bytes(root_), SIZE_MAX);
}

TEST(AddressLimit, IsNamedWhereThereIsOne) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "the tests themselves have a limit";
  EXPECT_EQ(address_limit_note(), "");
  const rlimit lower{uint64_t{1} << 50, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &lower), 0);
  EXPECT_NE(address_limit_note().find("limited to 1125899906.8 MB: RLIMIT_AS"), std::string::npos);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
}

}  // namespace
}  // namespace bolide
