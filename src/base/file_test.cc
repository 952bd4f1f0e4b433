#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace bolide {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string failure(const std::filesystem::path& path) {
    const auto written = write_file_atomically(path, as_bytes(std::string_view("text")));
    return written ? "" : written.error().text;
  }
  size_t entries() { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {})); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("bolide_file_test." + std::to_string(::getpid()));
};

TEST_F(AtomicFileTest, ReplacesAFile) {
  EXPECT_EQ(failure(folder_ / "a"), "");
  EXPECT_EQ(failure(folder_ / "a"), "");
  EXPECT_EQ(*read_file(folder_ / "a"), "text");
  EXPECT_EQ(entries(), 1u);
}

// Renaming over it would turn a machine's /dev/null into a plain file.
TEST_F(AtomicFileTest, NeverReplacesWhatIsNoFile) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_NE(failure(folder_ / "pipe").find("is a device or pipe"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_fifo(folder_ / "pipe"));
  std::filesystem::create_symlink("pipe", folder_ / "link");
  EXPECT_NE(failure(folder_ / "link").find("is a device or pipe"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_NE(failure(folder_).find("is a directory"), std::string::npos);
  EXPECT_EQ(entries(), 2u);  // and nothing is left behind
}

TEST_F(AtomicFileTest, SaysThatTheFolderIsMissing) {
  EXPECT_NE(failure(folder_ / "none" / "a").find("its folder does not exist"), std::string::npos);
}

TEST_F(AtomicFileTest, WritesWhatALinkLeadsTo) {
  std::filesystem::create_directory(folder_ / "there");
  ASSERT_EQ(failure(folder_ / "there" / "old"), "");
  std::filesystem::create_symlink("there/old", folder_ / "link");
  std::filesystem::create_symlink("link", folder_ / "link2");
  std::filesystem::create_symlink("there/new", folder_ / "dangling");
  ASSERT_TRUE(write_file_atomically(folder_ / "link2", as_bytes(std::string_view("other"))).has_value());
  ASSERT_TRUE(write_file_atomically(folder_ / "dangling", as_bytes(std::string_view("fresh"))).has_value());
  EXPECT_EQ(*read_file(folder_ / "there" / "old"), "other");
  EXPECT_EQ(*read_file(folder_ / "there" / "new"), "fresh");
  for (const char* name : {"link", "link2", "dangling"})
    EXPECT_TRUE(std::filesystem::is_symlink(folder_ / name)) << name;
  EXPECT_EQ(entries(), 4u);
}

// Only links in a folder of the test's own: a fault here must not harm the machine's devices.
TEST_F(AtomicFileTest, NeverReplacesALinkToWhatIsNoFile) {
  const std::filesystem::path open_file = folder_ / "open";
  const int descriptor = ::open(open_file.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(descriptor, 0);
  std::filesystem::create_directory(folder_ / "directory");
  const std::pair<const char*, std::pair<std::string, std::string>> links[] = {
      {"null", {"/dev/null", "is in /dev"}},
      {"nothing", {"/dev/bolide-no-such-file", "is in /dev"}},
      {"descriptor", {"/proc/self/fd/" + std::to_string(descriptor), "where the system's devices are"}},
      {"folder", {"directory", "is a directory"}},
      {"self", {"self", "lead in a circle"}},
      {"one", {"two", "lead in a circle"}},
      {"two", {"one", "lead in a circle"}},
      {"lost", {"none/a", "its folder does not exist"}},
  };
  for (const auto& [name, link] : links) std::filesystem::create_symlink(link.first, folder_ / name);
  for (const auto& [name, link] : links) {
    const std::string text = failure(folder_ / name);
    EXPECT_NE(text.find(link.second), std::string::npos) << name << ": " << text;
    EXPECT_FALSE(check_output_file(folder_ / name).has_value()) << name;
  }
  for (const auto& [name, link] : links) EXPECT_TRUE(std::filesystem::is_symlink(folder_ / name)) << name;
  ::close(descriptor);
  EXPECT_EQ(std::filesystem::file_size(open_file), 0u);
}

TEST_F(AtomicFileTest, AFileThatIsReplacedKeepsItsMode) {
  ASSERT_EQ(failure(folder_ / "a"), "");
  for (const mode_t mode : {0640u, 0600u, 0666u}) {
    ASSERT_EQ(::chmod((folder_ / "a").c_str(), mode), 0);
    ASSERT_EQ(failure(folder_ / "a"), "");
    struct stat status{};
    ASSERT_EQ(::stat((folder_ / "a").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode);
  }
}

pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST_F(AtomicFileTest, RemovesWhatDeadProcessesLeft) {
  const std::string dead = std::to_string(dead_process()), alive = std::to_string(::getppid());
  const auto touch = [&](const std::string& name) { std::ofstream(folder_ / name) << "part"; };
  for (const std::string& name : {"a.tmp" + dead, "a.tmp" + std::to_string(::getpid())}) touch(name);  // go
  const std::string kept[] = {"a.tmp" + alive, "a.tmp", "a.tmp" + dead + "x", "b.tmp" + dead};
  for (const std::string& name : kept) touch(name);
  ASSERT_EQ(failure(folder_ / "a"), "");
  for (const std::string& name : kept) EXPECT_TRUE(std::filesystem::exists(folder_ / name)) << name;
  EXPECT_EQ(entries(), std::size(kept) + 1);

  // In another container, whose processes this one cannot see, somebody still writes it.
  touch("a.tmp" + dead);
  const int descriptor = ::open((folder_ / ("a.tmp" + dead)).c_str(), O_WRONLY);
  ASSERT_EQ(::flock(descriptor, LOCK_EX), 0);
  ASSERT_EQ(failure(folder_ / "a"), "");
  EXPECT_TRUE(std::filesystem::exists(folder_ / ("a.tmp" + dead)));
  ::close(descriptor);
}

TEST_F(AtomicFileTest, AHandlerOfSignalsRemovesWhatIsNotFinished) {
  ASSERT_EQ(failure(folder_ / "done"), "");
  for (int i = 0; i < 20; ++i) {  // entries of the table are used again
    auto file = AtomicFile::create(folder_ / "a");
    ASSERT_TRUE(file.has_value()) << file.error().text;
    ASSERT_EQ(entries(), 2u);
    remove_unfinished_files();
    EXPECT_EQ(entries(), 1u);
    EXPECT_FALSE(file->commit().has_value());
  }
  EXPECT_EQ(*read_file(folder_ / "done"), "text");
}

TEST_F(AtomicFileTest, MappedFilesAreKnownByAddress) {
  std::ofstream(folder_ / "a") << std::string(10000, 'x');
  const std::byte* address = nullptr;
  {
    auto opened = MappedFile::open(folder_ / "a");
    ASSERT_TRUE(opened.has_value());
    const MappedFile file = std::move(*opened);
    address = file.bytes().data();
    for (const size_t at : {0, 9999, 12287}) EXPECT_EQ(mapped_file_at(address + at), (folder_ / "a").string());
    EXPECT_EQ(mapped_file_at(address + 12288), nullptr);
    EXPECT_EQ(mapped_file_at(&file), nullptr);
  }
  EXPECT_EQ(mapped_file_at(address), nullptr);
}

}  // namespace
}  // namespace bolide
