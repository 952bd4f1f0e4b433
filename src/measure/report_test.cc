#include "measure/report.h"

#include <gtest/gtest.h>
#include <algorithm>

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

TEST(Report, TableKeepsWithinAWidth) {
  Table table({{"what"}, {"kernel"}, {"share_percent", 1, "%"}});
  table.add({std::string("layers.0.attn.q_k_v.rope"), std::string("qkv_rope"), 12.5});
  table.add({std::string("größer als man denkt"), std::string("x"), 0.25});
  EXPECT_EQ(table.to_text(30),
            "what            kernel       %\n"
            "layers.0.attn…  qkv_rope  12.5\n"
            "größer als ma…  x          0.2\n");
  for (const size_t width : {30, 39, 40, 200}) {
    const std::string text = table.to_text(width);
    for (size_t at = 0; at < text.size();) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      const auto count = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LE(static_cast<size_t>(count), width) << line;
      at += line.size() + 1;
    }
    EXPECT_EQ(text.find("share"), std::string::npos);
    EXPECT_EQ(text.find("…") != std::string::npos, width < 40);
  }
  // Numbers are never cut, and of texts something stays.
  EXPECT_NE(table.to_text(1).find("layers.…"), std::string::npos);
  EXPECT_NE(table.to_text(1).find("12.5"), std::string::npos);
  EXPECT_NE(table.to_json().find("\"share_percent\":12.5"), std::string::npos);
}

}  // namespace
}  // namespace bolide
