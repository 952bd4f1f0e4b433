#include "server/batch/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace bolide::server {
namespace {

using Json = nlohmann::json;

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"a", "\"", "\\", "{",  "}", "[",      "]",
                                                   ",", ":",  "\n", "\t", " ", "\u00e9", "\U0001F600"};
  std::string text;
  for (size_t left = random() % 6; left > 0; --left) text += kPieces[random() % kPieces.size()];
  return text;
}

Json random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 7 : 5)) {
    case 0: return random_text(random);
    case 1: return static_cast<int64_t>(random()) - (1 << 30);
    case 2: return static_cast<double>(random()) / 3e5;
    case 3: return random() % 2 == 0;
    case 4: return nullptr;
    case 5: {
      Json list = Json::array();
      for (size_t left = random() % 4; left > 0; --left) list.push_back(random_value(random, depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (size_t left = random() % 4; left > 0; --left) object[random_text(random)] = random_value(random, depth - 1);
      return object;
    }
  }
}

TEST(JsonFields, ArePiecesOfTheWhole) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    Json object = Json::object();
    for (size_t left = random() % 6; left > 0; --left) object[random_text(random)] = random_value(random, 3);
    const std::string text = object.dump(static_cast<int>(random() % 4) - 1, ' ', random() % 2 == 0);
    const auto fields = json_fields(text);
    ASSERT_TRUE(fields.has_value()) << fields.error().text << "\n" << text;
    Json again = Json::object();
    for (const JsonField& field : *fields) again[field.name] = Json::parse(field.value);
    EXPECT_EQ(again, object) << text;
    EXPECT_EQ(fields->size(), object.size());
  }
}

TEST(JsonFields, SayWhatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "is empty"},
      {"{\"a\":1", "ends at line 1, column 7"},
      {"{\"a\":1}}", "no valid JSON"},
      {"[1]", "must be a JSON object"},
      {"1", "must be a JSON object"},
      {"{\"a\":\"\xff\"}", "is not UTF-8"},
      {"{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}", "nests deeper"},
  };
  for (const auto& [text, says] : cases) {
    const auto fields = json_fields(text);
    ASSERT_FALSE(fields.has_value()) << text;
    EXPECT_NE(fields.error().text.find(says), std::string::npos) << text << ": " << fields.error().text;
  }
}

TEST(JsonFields, AreReadAsADocumentReadsThem) {
  const auto fields = json_fields(R"( { "a" : "one" , "a":"two","b\u0063" : -12,"d":1.5,"e":9999999999999999999 } )");
  ASSERT_TRUE(fields.has_value());
  EXPECT_EQ(json_text(find_field(*fields, "a")), "two");
  EXPECT_EQ(json_integer(find_field(*fields, "bc")), -12);
  EXPECT_EQ(json_integer(find_field(*fields, "a")), std::nullopt);
  EXPECT_EQ(json_integer(find_field(*fields, "d")), std::nullopt);
  EXPECT_EQ(json_integer(find_field(*fields, "e")), std::nullopt);
  EXPECT_EQ(json_text(find_field(*fields, "bc")), std::nullopt);
  EXPECT_TRUE(find_field(*fields, "absent").empty());
}

}  // namespace
}  // namespace bolide::server
