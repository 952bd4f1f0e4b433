#include "measure/report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

namespace bolide {
namespace {

TEST(Report, ParsesTheStatusFile) {
  const auto memory = parse_process_memory("Name:\tx\nVmHWM:\t    5432 kB\nVmRSS:\t  100 kB\nRssAnon:\t 7 kB\n");
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->peak_bytes, 5432 * 1024);
  EXPECT_EQ(memory->resident_bytes, 100 * 1024);
  EXPECT_EQ(memory->anonymous_bytes, 7 * 1024);
  const auto missing = parse_process_memory("VmHWM:\t    5432 kB\nVmRSS: 1 kB\n");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().text.find("RssAnon"), std::string::npos);
  EXPECT_FALSE(parse_process_memory("").has_value());
  EXPECT_FALSE(parse_process_memory("VmHWM:").has_value());
}

TEST(Report, SeesItsOwnMemoryGrow) {
  const auto before = read_process_memory();
  ASSERT_TRUE(before.has_value());
  constexpr size_t kBytes = 64 << 20;
  const auto block = std::make_unique<char[]>(kBytes);
  std::memset(block.get(), 1, kBytes);
  asm volatile("" ::"r"(block.get()) : "memory");
  const auto after = read_process_memory();
  ASSERT_TRUE(after.has_value());
  EXPECT_GT(after->anonymous_bytes - before->anonymous_bytes, static_cast<int64_t>(kBytes) * 9 / 10);
  EXPECT_GE(after->peak_bytes, after->resident_bytes);
}

TEST(Report, FormatsBytes) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.00 GiB");
}

TEST(Report, TableAlignsAndGivesJson) {
  Table table({{"kernel"}, {"ms", 3}, {"note"}});
  table.add({std::string("linear"), 1.25, std::string("a \"b\"")});
  table.add({std::string("x"), 10.0 / 3, std::string("")});
  EXPECT_EQ(table.to_text(),
            "kernel     ms  note\n"
            "linear  1.250  a \"b\"\n"
            "x       3.333  \n");
  const auto json = nlohmann::json::parse(table.to_json());
  EXPECT_EQ(json[0]["note"], "a \"b\"");
  EXPECT_DOUBLE_EQ(json[1]["ms"].get<double>(), 10.0 / 3);
  Table infinite({{"x"}});
  infinite.add({std::numeric_limits<double>::infinity()});
  EXPECT_EQ(infinite.to_json(), "[{\"x\":null}]");
  EXPECT_EQ(Table({{"empty"}}).to_json(), "[]");
}

}  // namespace
}  // namespace bolide
