#include "server/batch/id_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace bolide::server {
namespace {

TEST(IdTable, RemembersTheMarksOfEveryId) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  IdTable table;
  std::map<std::string, uint64_t> expected;
  for (int i = 0; i < 20'000; ++i) {
    const std::string id = "request-" + std::to_string(random() % 8000);
    const uint64_t marks = random() % 8;
    ASSERT_EQ(table.mark(id, marks), expected[id]) << id;
    expected[id] |= marks;
  }
  for (uint64_t marks = 0; marks < 8; ++marks) {
    uint64_t count = 0;
    for (const auto& [id, has] : expected) count += (has & marks) == marks ? 1 : 0;
    EXPECT_EQ(table.count(marks), count);
  }
}

}  // namespace
}  // namespace bolide::server
