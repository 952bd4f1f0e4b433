#include "base/options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/knobs.h"

namespace bolide {
namespace {

struct Config {
  bool fast = false;
  int32_t port = 8000;
  int64_t cache_bytes = 1 << 20;
  double temperature = 0.5;
  std::string format = "json";
  std::string name = "none";
};

constexpr Option<Config> kTable[] = {
    {"fast", &Config::fast, {}, "be fast"},
    {"port", &Config::port, {.min = 1, .max = 65535}, "TCP port to listen on"},
    {"cache_bytes", &Config::cache_bytes, {.unit = "bytes", .min = 0}, "memory for the cache"},
    {"temperature", &Config::temperature, {.min = 0, .max = 2}, "randomness"},
    {"format", &Config::format, {.choices = "json|text"}, "output format"},
    {"name", &Config::name, {}, "any text"},
};

class OptionsTest : public ::testing::Test {
 protected:
  Result<> set(std::string_view name, std::string_view text) {
    for (const BoundOption& option : options_)
      if (option.name == name) return set_option(option, text);
    return error(Code::kNotFound, "no such option");
  }
  std::string failure(std::string_view name, std::string_view text) {
    const auto result = set(name, text);
    return result.has_value() ? "" : result.error().text;
  }
  Config config_;
  std::vector<BoundOption> options_ = bind_options(config_, kTable);
};

TEST_F(OptionsTest, SetsEveryType) {
  ASSERT_TRUE(set("fast", "true").has_value());
  ASSERT_TRUE(set("port", "80").has_value());
  ASSERT_TRUE(set("cache_bytes", "8GiB").has_value());
  ASSERT_TRUE(set("temperature", "1.25").has_value());
  ASSERT_TRUE(set("format", "text").has_value());
  ASSERT_TRUE(set("name", "").has_value());
  EXPECT_TRUE(config_.fast);
  EXPECT_EQ(config_.port, 80);
  EXPECT_EQ(config_.cache_bytes, int64_t{8} << 30);
  EXPECT_DOUBLE_EQ(config_.temperature, 1.25);
  EXPECT_EQ(config_.format, "text");
  EXPECT_EQ(config_.name, "");
}

TEST_F(OptionsTest, ErrorsNameTheOptionAndTheRangeAndChangeNothing) {
  EXPECT_EQ(failure("port", "70000"), "port is \"70000\"; give an integer, 1 to 65535");
  EXPECT_EQ(failure("port", "5000000000"), "port is \"5000000000\"; give an integer, 1 to 65535");
  EXPECT_EQ(failure("port", "80x"), "port is \"80x\"; give an integer, 1 to 65535");
  EXPECT_EQ(failure("port", "1KiB"), "port is \"1KiB\"; give an integer, 1 to 65535");
  EXPECT_EQ(failure("cache_bytes", "-1"), "cache_bytes is \"-1\"; give an integer, 0 to 9223372036854775807 bytes");
  EXPECT_EQ(failure("cache_bytes", "9000000000TiB"),
            "cache_bytes is \"9000000000TiB\"; give an integer, 0 to 9223372036854775807 bytes");
  EXPECT_EQ(failure("temperature", "nan"), "temperature is \"nan\"; give a number, 0 to 2");
  EXPECT_EQ(failure("format", "xml"), "format is \"xml\"; give json|text");
  EXPECT_EQ(failure("format", ""), "format is \"\"; give json|text");
  EXPECT_EQ(failure("fast", "yes"), "fast is \"yes\"; give true|false");
  EXPECT_LT(failure("format", std::string(100000, 'x')).size(), 200u);
  EXPECT_EQ(options_to_json(options_), options_to_json(bind_options(*std::make_unique<Config>(), kTable)));
}

TEST_F(OptionsTest, JsonRoundTrips) {
  ASSERT_TRUE(set_options_from_json(options_, R"({"port": 9, "name": "a\"b", "temperature": 1, "fast": true,
                                                  "cache_bytes": "4KiB", "format": "text"})")
                  .has_value());
  EXPECT_EQ(config_.cache_bytes, 4096);
  Config copy;
  const auto copy_options = bind_options(copy, kTable);
  ASSERT_TRUE(set_options_from_json(copy_options, options_to_json(options_)).has_value());
  EXPECT_EQ(options_to_json(copy_options), options_to_json(options_));
  EXPECT_EQ(copy.name, "a\"b");
}

TEST_F(OptionsTest, JsonErrorsNameTheKey) {
  const auto text = [&](std::string_view json) {
    const auto result = set_options_from_json(options_, json);
    return result.has_value() ? "" : result.error().text;
  };
  EXPECT_EQ(text(R"({"prot": 9})"), "there is no option \"prot\"; did you mean \"port\"?");
  EXPECT_EQ(text(R"({"zzzzzz": 9})"), "there is no option \"zzzzzz\"");
  EXPECT_EQ(text(R"({"port": "9"})"), "port is \"9\"; give an integer, 1 to 65535");
  EXPECT_EQ(text(R"({"port": 1.5})"), "port is \"1.5\"; give an integer, 1 to 65535");
  EXPECT_EQ(text(R"({"port": [1, 2]})"), "port is \"a JSON array\"; give an integer, 1 to 65535");
  const std::string deep = "{\"port\": " + std::string(300000, '[') + std::string(300000, ']') + "}";
  EXPECT_EQ(text(deep), "port is \"a JSON array\"; give an integer, 1 to 65535");
  EXPECT_EQ(text(R"({"name": 7})"), "name is \"7\"; give text");
  EXPECT_EQ(text("[]"), "the configuration is not a JSON object, {\"name\": value, ...}");
  EXPECT_EQ(text("{"), "the configuration is not valid JSON");
  EXPECT_EQ(text(std::string(200000, '[')), "the configuration is not valid JSON");
}

TEST_F(OptionsTest, ChecksStructsFilledByCode) {
  EXPECT_TRUE(check_options(options_).has_value());
  config_.temperature = std::nan("");
  EXPECT_FALSE(check_options(options_).has_value());
}

TEST_F(OptionsTest, ListsAndNames) {
  EXPECT_EQ(flag_name("cache_bytes"), "--cache-bytes");
  const std::string listing = list_options(options_);
  EXPECT_NE(listing.find("port         8000     1 to 65535        TCP port to listen on\n"), std::string::npos)
      << listing;
}

TEST(Knobs, ReadsTheEnvironmentGivenToIt) {
  const auto none = [](const char*) -> const char* { return nullptr; };
  const auto defaults = read_knobs(none);
  ASSERT_TRUE(defaults.has_value());
  EXPECT_EQ(defaults->log, "warning");
  const auto some = [](const char* name) -> const char* {
    return std::string_view(name) == "BOLIDE_LOG" ? "debug" : nullptr;
  };
  const auto set = read_knobs(some);
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ(set->log, "debug");
  const auto wrong = read_knobs(
      [](const char* name) -> const char* { return std::string_view(name) == "BOLIDE_LOG" ? "loud" : nullptr; });
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().text.substr(0, 19), "BOLIDE_LOG is \"loud") << wrong.error().text;
  EXPECT_NE(list_knobs(*set).find("BOLIDE_LOG"), std::string::npos);
}

TEST(Knobs, PlainTextIsAskedForByTermOrNoColor) {
  const auto wanted = [](const char* term, const char* no_color) {
    return escapes_wanted([&](const char* name) { return std::string_view(name) == "TERM" ? term : no_color; });
  };
  EXPECT_TRUE(wanted(nullptr, nullptr));
  EXPECT_TRUE(wanted("xterm", ""));
  EXPECT_FALSE(wanted("dumb", nullptr));
  EXPECT_FALSE(wanted("xterm", "1"));
}

}  // namespace
}  // namespace bolide
