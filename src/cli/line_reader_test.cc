#include "cli/line_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace bolide::cli {
namespace {

struct Read {
  std::optional<std::string> message;
  bool unfinished = false;
  size_t lines_left = 0;
};

Read read(std::vector<std::string> lines) {
  size_t at = 0;
  const auto next = [&](const char*) -> std::optional<std::string> {
    if (at == lines.size()) return std::nullopt;
    return lines[at++];
  };
  Read result;
  result.message = read_message("> ", next, &result.unfinished);
  result.lines_left = lines.size() - at;
  return result;
}

TEST(ReadMessage, JoinsLinesAndBlocks) {
  EXPECT_EQ(read({"one", "two"}).message, "one");
  EXPECT_EQ(read({"one\\", "two", "three"}).message, "one\ntwo");
  const Read block = read({"\"\"\"", "one\\", "", "two", "\"\"\"", "three"});
  EXPECT_EQ(block.message, "one\\\n\ntwo\n");
  EXPECT_EQ(block.lines_left, 1u);
  EXPECT_EQ(read({""}).message, "");
}

TEST(ReadMessage, DropsWhatTheEndCutsOff) {
  const Read end = read({});
  EXPECT_FALSE(end.message.has_value());
  EXPECT_FALSE(end.unfinished);
  for (const auto& lines : {std::vector<std::string>{"\"\"\"", "one"}, {"\"\"\""}, {"one\\"}}) {
    const Read cut = read(lines);
    EXPECT_FALSE(cut.message.has_value());
    EXPECT_TRUE(cut.unfinished);
  }
}

}  // namespace
}  // namespace bolide::cli
