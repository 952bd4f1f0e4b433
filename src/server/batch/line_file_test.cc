#include "server/batch/line_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <vector>

#include "formats/test_files.h"

namespace bolide::server {
namespace {

TEST(LineFile, GivesTheLinesOfTheFile) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const test::TemporaryFolder folder;
  for (int round = 0; round < 8; ++round) {
    std::vector<std::string> lines;
    std::string content;
    std::vector<size_t> begins;
    const bool ended = random() % 2 == 0;
    for (size_t i = 0, count = 1 + random() % 30; i < count; ++i) {
      // About a multiple of what is read at once, or short.
      const size_t size = random() % 3 == 0 ? 256 * 1024 * (random() % 3) + random() % 3 : random() % 50;
      lines.emplace_back(size, static_cast<char>('a' + i % 26));
      begins.push_back(content.size());
      content += lines.back() + "\n";
    }
    if (!ended) content.pop_back();
    if (!ended && lines.back().empty()) lines.pop_back();
    auto file = LineFile::open(folder.write("lines", content), 1 << 20);
    ASSERT_TRUE(file.has_value()) << file.error().text;
    EXPECT_EQ(file->bytes(), content.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto line = file->next();
      ASSERT_TRUE(line.has_value() && line->has_value());
      EXPECT_EQ((*line)->text, lines[i]);
      EXPECT_EQ((*line)->number, i + 1);
      EXPECT_EQ((*line)->begin, begins[i]);
      EXPECT_EQ((*line)->ended, ended || begins[i] + lines[i].size() < content.size());
    }
    for (int more = 0; more < 2; ++more) {
      const auto line = file->next();
      ASSERT_TRUE(line.has_value());
      EXPECT_FALSE(line->has_value());
    }
  }
}

TEST(LineFile, RefusesWhatItCannotRead) {
  const test::TemporaryFolder folder;
  auto file = LineFile::open(folder.write("long", "a\n" + std::string(1 << 20, 'b')), 1000);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->next().has_value());
  const auto line = file->next();
  ASSERT_FALSE(line.has_value());
  EXPECT_NE(line.error().text.find("long:2: the line has more than 1000 bytes"), std::string::npos)
      << line.error().text;
  const auto absent = LineFile::open(folder.path() / "absent", 1000);
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, Code::kNotFound);
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  for (const auto& path : {folder.path() / "pipe", folder.path()}) {
    const auto other = LineFile::open(path, 1000);
    ASSERT_FALSE(other.has_value());
    EXPECT_NE(other.error().text.find("is not a regular file"), std::string::npos) << other.error().text;
  }
}

}  // namespace
}  // namespace bolide::server
