#include "formats/engine_file.h"

#include <gtest/gtest.h>
#include <lzma.h>

#include <random>

#include "formats/test_files.h"

namespace bolide {
namespace {

std::string section(const std::string& name, uint64_t offset, uint64_t bytes, uint64_t crc = 0) {
  return test::raw(static_cast<uint16_t>(name.size())) + name + test::raw(offset) + test::raw(bytes) + test::raw(crc);
}

// A file with this table and a right checksum of it.
std::string file_with_table(const std::string& table, uint64_t table_bytes) {
  std::string file("BOLIDE\0\1", 8);
  file += test::raw(table_bytes) +
          test::raw<uint64_t>(lzma_crc64(reinterpret_cast<const uint8_t*>(table.data()), table.size(), 0));
  return file + table + std::string(20000 - file.size() - table.size(), 'x');
}
std::string file_with_table(const std::string& table) { return file_with_table(table, table.size()); }

std::string refusal(const std::string& file) {
  const auto sections = parse_engine_table(as_bytes(file));
  return sections ? "" : sections.error().text;
}

TEST(EngineFile, RoundTrips) {
  const test::TemporaryFolder folder;
  std::mt19937 random(1);
  std::vector<std::pair<std::string, std::string>> contents;
  for (const size_t size : {0, 1, 4095, 4096, 4097, 100000}) {
    std::string text(size, ' ');
    for (char& c : text) c = static_cast<char>(random());
    contents.emplace_back("section " + std::to_string(size), std::move(text));
  }
  std::vector<EngineSectionData> data;
  for (const auto& [name, text] : contents) data.push_back({name, as_bytes(text)});
  const auto path = folder.path() / "a.engine";
  const auto written = write_engine_file(path, data);
  ASSERT_TRUE(written.has_value()) << written.error().text;
  const auto engine = EngineFile::open(path);
  ASSERT_TRUE(engine.has_value()) << engine.error().text;
  ASSERT_EQ(engine->sections().size(), contents.size());
  for (const auto& [name, text] : contents) {
    const auto bytes = engine->section(name, true);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().text;
    EXPECT_TRUE(as_text(*bytes) == text) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes->data()) % 4096, 0u);
  }
  const auto absent = engine->section("absent", false);
  ASSERT_FALSE(absent.has_value());
  EXPECT_NE(absent.error().text.find("absent"), std::string::npos);
  EXPECT_NE(absent.error().text.find("bolide build"), std::string::npos);
}

TEST(EngineFile, HostileTablesAreRefused) {
  const auto count = [](uint32_t n) { return test::raw(n); };
  EXPECT_EQ(refusal(file_with_table(count(1) + section("a", 4096, 10))), "");
  EXPECT_EQ(refusal(file_with_table(count(0))), "");
  const std::string one = section("a", 4096, 10);
  for (const std::string& table :
       {std::string(), std::string("\1\0", 2), count(2) + one, count(UINT32_MAX) + one, count(1 << 20) + one,
        count(1) + one + "x", count(1) + section("a", 4097, 10), count(1) + section("a", 4096, 20000),
        count(1) + section("a", 20480, 0), count(1) + section("a", UINT64_MAX - 4095, 4096),
        count(1) + section("a", UINT64_MAX - 4095, 4095), count(1) + section("a", 4096, UINT64_MAX - 4095),
        count(1) + section("a", uint64_t{1} << 63, 1), count(1) + test::raw<uint16_t>(60000) + "a"})
    EXPECT_NE(refusal(file_with_table(table)).find("not a usable engine"), std::string::npos);
  const std::string table = count(1) + one;
  for (const uint64_t bytes :
       {uint64_t{0}, table.size() - 1, table.size() + 1, uint64_t{20000}, UINT64_MAX, UINT64_MAX - 23})
    EXPECT_NE(refusal(file_with_table(table, bytes)), "") << bytes;
  EXPECT_NE(refusal("BOLIDE"), "");
  EXPECT_NE(refusal(std::string("BOLIDE\0\2", 8) + std::string(100, '\0')).find("of this version"), std::string::npos);
  for (size_t size = 0; size < 24 + table.size(); ++size)
    EXPECT_NE(refusal(file_with_table(table).substr(0, size)), "") << size;
}

TEST(EngineFile, EveryFlippedByteOfTheTableIsFound) {
  const std::string good = file_with_table(test::raw<uint32_t>(1) + section("name", 4096, 10));
  ASSERT_EQ(refusal(good), "");
  const size_t end = 24 + 4 + section("name", 0, 0).size();
  for (size_t i = 0; i < end; ++i)
    for (const int bit : {0, 3, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_NE(refusal(bad), "") << "byte " << i;
    }
}

TEST(EngineFile, TwoSectionsOfOneNameAreRefused) {
  const test::TemporaryFolder folder;
  const std::vector<EngineSectionData> data = {{"a", as_bytes("1")}, {"a", as_bytes("2")}};
  ASSERT_TRUE(write_engine_file(folder.path() / "a.engine", data).has_value());
  const auto engine = EngineFile::open(folder.path() / "a.engine");
  ASSERT_FALSE(engine.has_value());
  EXPECT_NE(engine.error().text.find("two sections a"), std::string::npos) << engine.error().text;
}

}  // namespace
}  // namespace bolide
