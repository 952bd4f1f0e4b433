#include "server/api_keys.h"

#include <gtest/gtest.h>

namespace bolide::server {
namespace {

TEST(ApiKeys, LinesThatAreWrongAreNamedButNotTheirKeys) {
  const std::pair<const char*, const char*> cases[] = {
      {"alice", "line 1"},
      {"\nalice short", "line 2"},
      {"a secret-secret-secret x", "line 1"},
      {"a secret-secret-secret concurrent=0", "line 1"},
      {"a secret-secret-secret concurrent=5x", "line 1"},
      {"a secret-secret-secret\nb secret-secret-secret", "line 2"},
      {"a secret-secret-secret\na secret-secret-secre2", "line 2"},
      {"# nothing\n", "has no keys"},
  };
  for (const auto& [text, says] : cases) {
    const auto parsed = ApiKeys::parse(text, "keys.txt", 1);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_NE(parsed.error().text.find(says), std::string::npos) << parsed.error().text;
    EXPECT_NE(parsed.error().text.find("keys.txt"), std::string::npos);
    EXPECT_EQ(parsed.error().text.find("secret-"), std::string::npos) << parsed.error().text;
  }
}

TEST(ApiKeys, OnlyTheWholeKeyIsFound) {
  const auto keys = *ApiKeys::parse("a 0123456789abcdef\r\nb\t0123456789abcdeF concurrent=2\n", "keys", 1);
  ASSERT_NE(keys->find("0123456789abcdef"), nullptr);
  EXPECT_EQ(keys->find("0123456789abcdef")->name, "a");
  EXPECT_EQ(keys->find("0123456789abcdeF")->name, "b");
  EXPECT_NE(keys->find("0123456789abcdeF")->salt, keys->find("0123456789abcdef")->salt);
  for (const char* wrong : {"", "0123456789abcde", "0123456789abcdef ", "a", "0123456789ABCDEF"})
    EXPECT_EQ(keys->find(wrong), nullptr) << wrong;
}

TEST(ApiKeys, LimitsFillUpAgain) {
  const auto keys = *ApiKeys::parse("a 0123456789abcdef concurrent=2 requests-per-minute=6", "keys", 1);
  const ApiKey& key = *keys->find("0123456789abcdef");
  auto first = keys->enter(key, 0), second = keys->enter(key, 0);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_FALSE(keys->enter(key, 0).has_value());
  *first = nullptr;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(keys->enter(key, 0).has_value()) << i;  // let go of at once
  EXPECT_FALSE(keys->enter(key, 9'000'000).has_value());
  EXPECT_TRUE(keys->enter(key, 10'100'000).has_value());
  EXPECT_FALSE(keys->enter(key, 10'200'000).has_value());
}

TEST(ApiKeys, AreReplacedWhileTheyAreUsed) {
  const auto keys = *ApiKeys::parse("a 0123456789abcdef concurrent=1\nb fedcba9876543210\n", "keys", 1);
  const ApiKey* a = keys->find("0123456789abcdef");
  const ApiKey* b = keys->find("fedcba9876543210");
  auto running = keys->enter(*a, 0);
  ASSERT_TRUE(running.has_value());

  const auto wrong = keys->replace("c short\n", "keys", 1);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(keys->find("0123456789abcdef"), a) << "nothing has changed";

  ASSERT_TRUE(keys->replace("c 00112233445566778899\nanna 0123456789abcdef concurrent=2\n", "keys", 1).has_value());
  EXPECT_EQ(keys->count(), 2u);
  EXPECT_EQ(keys->find("fedcba9876543210"), nullptr);
  EXPECT_EQ(b->name, "b") << "requests of it may still run";
  const ApiKey* anna = keys->find("0123456789abcdef");
  ASSERT_NE(anna, nullptr);
  EXPECT_EQ(anna->name, "anna");
  EXPECT_EQ(anna->number, a->number);
  EXPECT_EQ(anna->salt, a->salt);
  EXPECT_NE(keys->find("00112233445566778899")->number, b->number);
  // The one that runs counts.
  const auto second = keys->enter(*anna, 0);
  EXPECT_TRUE(second.has_value());
  EXPECT_FALSE(keys->enter(*anna, 0).has_value());
}

}  // namespace
}  // namespace bolide::server
