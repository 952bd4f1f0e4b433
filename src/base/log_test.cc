#include "base/log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace bolide {
namespace {

struct ListSink : log::Sink {
  explicit ListSink(log::LineFormat f) : format(f) {}
  void write(const log::Record& record) override { lines.push_back(log::to_line(record, format)); }
  log::LineFormat format;
  std::vector<std::string> lines;
};

TEST(Log, KeyValueLine) {
  const std::string name = "x";
  const std::vector<log::Field> fields = {{"steps", 3}, {"model", "a b"}, {"ok", true}, {"name", name}};
  EXPECT_EQ(log::to_line({log::Level::kInfo, 1'000'000'000'000'001, "plan built", fields}, log::LineFormat::kKeyValue),
            "2001-09-09T01:46:40.000001Z info \"plan built\" steps=3 model=\"a b\" ok=true name=x");
}

TEST(Log, DropsWhatIsBelowTheLevelAndEverythingWithoutASink) {
  ListSink sink(log::LineFormat::kKeyValue);
  log::error("nobody listens");
  log::set_sink(&sink, log::Level::kWarning);
  log::info("too low", {{"x", 1}});
  log::warning("low enough", {{"x", 1u}, {"y", 0.5}});
  log::set_sink(nullptr, log::Level::kDebug);
  log::error("nobody listens");
  ASSERT_EQ(sink.lines.size(), 1u);
  EXPECT_NE(sink.lines[0].find("warning \"low enough\" x=1 y=0.5"), std::string::npos);
}

TEST(Log, AnyBytesGiveOneValidJsonLine) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 24, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() % 128 : random());
    const std::vector<log::Field> fields = {{"value", bytes}, {"nan", std::nan("")}, {"big", UINT64_MAX}};
    const log::Record record{log::Level::kError, 0, bytes, fields};
    const std::string line = log::to_line(record, log::LineFormat::kJson);
    const auto json = nlohmann::json::parse(line, nullptr, false);  // strict about UTF-8
    ASSERT_FALSE(json.is_discarded()) << line;
    ASSERT_EQ(json["value"], json["text"]);
    ASSERT_TRUE(json["nan"].is_null());
    ASSERT_EQ(json["big"].get<uint64_t>(), UINT64_MAX);
    for (const auto format : {log::LineFormat::kJson, log::LineFormat::kKeyValue})
      for (const char c : log::to_line(record, format)) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    // Valid UTF-8 comes through unchanged, by the judgement of the other library.
    const auto original = nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
    if (nlohmann::json::parse(original).get<std::string>() == bytes) {
      ASSERT_EQ(json["text"].get<std::string>(), bytes);
    }
  }
}

TEST(Log, LevelsRoundTrip) {
  for (const auto level : {log::Level::kDebug, log::Level::kWarning, log::Level::kOff})
    EXPECT_EQ(*log::parse_level(log::to_string(level)), level);
  EXPECT_FALSE(log::parse_level("loud").has_value());
}

}  // namespace
}  // namespace bolide
