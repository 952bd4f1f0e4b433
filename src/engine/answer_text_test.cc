#include "engine/answer_text.h"

#include <gtest/gtest.h>

#include <random>

#include "formats/tokenizer_json.h"

namespace bolide {
namespace {

// Tokens a, b, c, ab, bca, and the four bytes of an emoji.
Tokenizer small_tokenizer() {
  auto spec = parse_tokenizer_json(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4,"bca":5,"ð":6,"Ł":7,"ĺ":8,"Ģ":9},)"
      R"("merges":["a b","b c","bc a"]},"decoder":{"type":"ByteLevel"},)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}})");
  EXPECT_TRUE(spec.has_value()) << spec.error().text;
  return *Tokenizer::create(*std::move(spec));
}

// The text before the stop string that is complete first, the longest of those that end there.
std::string before_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(AnswerText, TextEndsBeforeStopStringsAndTokensComeWithTheirText) {
  const Tokenizer tokenizer = small_tokenizer();
  std::mt19937 random(21);
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops(random() % 3);
    for (std::string& stop : stops)
      for (size_t i = 1 + random() % 4; i-- > 0;) stop += static_cast<char>('a' + random() % 3);
    std::vector<int32_t> ids;
    while (ids.size() < 12) {
      if (random() % 8 == 0)
        ids.insert(ids.end(), {6, 7, 8, 9});
      else
        ids.push_back(static_cast<int32_t>(random() % 6));
    }
    AnswerText answer(tokenizer, stops, true);
    std::string text, bytes;
    size_t tokens = 0;
    const auto show = [&](const TextPart& part) {
      text += part.text;
      for (const TextPart::Token& token : part.tokens) {
        ASSERT_EQ(token.id, ids[tokens]);
        ASSERT_EQ(token.logprob, -static_cast<float>(tokens));
        bytes += token.bytes;
        ++tokens;
      }
      ASSERT_GE(bytes.size() + 4, text.size()) << "text came before its tokens";
    };
    for (size_t i = 0; i < ids.size() && !answer.stopped(); ++i) show(answer.push(ids[i], -static_cast<float>(i)));
    show(answer.finish());
    const std::string whole = tokenizer.decode(ids);
    ASSERT_EQ(text, before_stop(whole, stops)) << whole;
    if (answer.stopped()) {
      ++stopped;
      ASSERT_TRUE(bytes.starts_with(text)) << bytes << " for " << text;
      ASSERT_LT(bytes.size() - text.size(), 4u) << "more than the token that the stop string cut";
    } else {
      ASSERT_EQ(bytes, text);
      ASSERT_EQ(tokens, ids.size());
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(stopped, 500);
}

TEST(AnswerText, StopStringsCountAfterTheLeastTokens) {
  for (size_t least = 0; least <= 6; ++least) {
    AnswerText answer(small_tokenizer(), {"c", "ab"}, true, static_cast<int32_t>(least));
    const std::vector<int32_t> ids = {3, 2, 0, 1, 2, 5};  // ab c a b c bca
    std::string text;
    size_t pushed = 0, tokens = 0;
    const auto show = [&](const TextPart& part) {
      text += part.text;
      tokens += part.tokens.size();
    };
    while (pushed < ids.size() && !answer.stopped()) show(answer.push(ids[pushed++], 0));
    show(answer.finish());
    // The first that begins behind the least tokens ends it.
    const std::vector<std::string> texts = {"", "ab", "abc", "abcab", "abcab", "abcabcb", "abcabcbca"};
    EXPECT_EQ(text, texts[least]) << least;
    EXPECT_EQ(answer.stopped(), least < 6);
    EXPECT_GE(tokens, least);
  }
}

TEST(AnswerText, WithoutTokensThereIsTextAlone) {
  AnswerText answer(small_tokenizer(), {"c"}, false);
  EXPECT_EQ(answer.push(3, 0).text, "ab");
  EXPECT_TRUE(answer.push(0, 0).tokens.empty());
  EXPECT_EQ(answer.push(4, 0).text, "b");
  EXPECT_TRUE(answer.stopped());
  EXPECT_EQ(answer.push(0, 0).text, "");
  EXPECT_EQ(answer.finish().text, "");
}

}  // namespace
}  // namespace bolide
