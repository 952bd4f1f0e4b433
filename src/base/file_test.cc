#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace
}  // namespace bolide
