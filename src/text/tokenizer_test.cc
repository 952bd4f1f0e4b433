#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <thread>

#include "base/sanitizers.h"
#include "base/utf8.h"
#include "formats/tokenizer_gguf.h"
#include "formats/tokenizer_json.h"
#include "formats/xz.h"
#include "text/detokenizer.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace bolide {
namespace {

// 256 byte tokens in the byte alphabet, and a few merges.
std::string byte_level_json(std::string_view pattern) {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, unicode::byte_to_char(static_cast<unsigned char>(byte)));
    if (text == "\"" || text == "\\") text = std::string("\\").append(text);
    vocab += "\"" + text + "\":" + std::to_string(byte) + ",";
  }
  return R"({"model":{"type":"BPE","vocab":{)" + vocab + R"("aa":256,"aaaa":257,"Ġa":258,"ĠĠ":259,"ðŁ":260},)" +
         R"("merges":["a a","aa aa","Ġ a",["Ġ","Ġ"],"ð Ł"]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
         R"({"type":"Split","pattern":{"Regex":")" + std::string(pattern) +
         R"("},"behavior":"Isolated","invert":false},)" +
         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},"decoder":{"type":"ByteLevel"},)" +
         R"("added_tokens":[{"id":300,"content":"<end>","special":true}]})";
}

constexpr std::string_view kPattern =
    R"((?i:'s|'t|'re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";

Tokenizer byte_level() {
  auto spec = parse_tokenizer_json(byte_level_json(kPattern));
  EXPECT_TRUE(spec.has_value()) << spec.error().text;
  auto tokenizer = Tokenizer::create(*std::move(spec));
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().text;
  return *std::move(tokenizer);
}

std::string repeated(std::string_view text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

// Of processor time, for a megabyte. Sanitizers multiply times by about ten.
#if BOLIDE_ADDRESS_SANITIZER || BOLIDE_THREAD_SANITIZER
constexpr double kSecondsMax = 100;
#else
constexpr double kSecondsMax = 10;
#endif

TEST(Tokenizer, HostileTextsTakeSeconds) {
  const Tokenizer tokenizer = byte_level();
  for (const std::string_view unit :
       {"a", " ", "🙂", "1", "\n", " \n", "a ", "\u0301\u0316", "'", "<", "<en", "\t\u3000"}) {
    const std::string text = repeated(unit, size_t{1} << 20);
    const std::clock_t start = std::clock();  // of the processor: the machine may be busy
    const auto ids = tokenizer.encode(text);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ASSERT_TRUE(ids.has_value()) << ids.error().text;
    EXPECT_LT(seconds, kSecondsMax) << unit;
    EXPECT_EQ(tokenizer.decode(*ids), text);
  }
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsPlace) {
  const Tokenizer tokenizer = byte_level();
  for (const std::string_view bad : {"abc\xFF", "abc\xC3", "abc\xED\xA0\x80", "abc\xC0\x80", "abc\xF4\x90\x80\x80"}) {
    const auto ids = tokenizer.encode(bad);
    ASSERT_FALSE(ids.has_value());
    EXPECT_NE(ids.error().text.find("byte 3"), std::string::npos) << ids.error().text;
  }
}

TEST(Tokenizer, RandomTextComesBackWhole) {
  const Tokenizer tokenizer = byte_level();
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const size_t length = random() % 60;
    for (size_t i = 0; i < length; ++i) {
      constexpr std::pair<uint32_t, uint32_t> kRanges[] = {{0, 128}, {0x80, 0x700}, {0x4E00, 500}, {0x1F600, 80}};
      const auto& [first, count] = kRanges[random() % 4];
      append_utf8(text, static_cast<char32_t>(first + random() % count));
    }
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.has_value()) << ids.error().text;
    EXPECT_EQ(tokenizer.decode(*ids), text);
    std::string bytes;
    for (const int32_t id : *ids) bytes += tokenizer.token_bytes(id);
    EXPECT_EQ(bytes, text);
  }
}

TEST(Tokenizer, SpecialTokensInTextAreParsedOnlyIfAsked) {
  const Tokenizer tokenizer = byte_level();
  EXPECT_EQ(tokenizer.encode("a<end>").value(), (std::vector<int32_t>{'a', 300}));
  EXPECT_GT(tokenizer.encode("a<end>", {.parse_special = false}).value().size(), 4u);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'a', 300, 'a'}, true), "aa");
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_EQ(tokenizer.vocab_size(), 301);
  EXPECT_FALSE(tokenizer.has_token(280));
}

TEST(Tokenizer, ManyThreadsEncodeAtOnce) {
  const Tokenizer tokenizer = byte_level();
  const std::string text = repeated("aaa bbb 123 🙂 ", 20000);
  const auto want = tokenizer.encode(text).value();
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> got(4);
  for (size_t i = 0; i < got.size(); ++i) threads.emplace_back([&, i] { got[i] = tokenizer.encode(text).value(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, want);
}

TEST(Tokenizer, BrokenDescriptionsNameTheField) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", "expected JSON"},
      {"[]", "expected an object"},
      {"{}", "model: is missing"},
      {R"({"model":{"type":"Magic","vocab":{}}})", "\"Magic\""},
      {R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})", "model.vocab"},
      {R"({"model":{"type":"BPE","vocab":{"a":2000000000},"merges":[]}})", "2000000000"},
      {R"({"model":{"type":"BPE","vocab":{"a":18446744073709551615},"merges":[]}})", "model.vocab"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]}})", "model.merges[0]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}})", "model.merges[0]"},
      {R"({"model":{"type":"BPE","dropout":0.1,"vocab":{},"merges":[]}})", "model.dropout"},
      {R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":7}})", "model.unk_id"},
      {R"({"model":{"type":"WordLevel","vocab":{}},"normalizer":{"type":"Shout"}})", "\"Shout\""},
      {R"({"model":{"type":"WordLevel","vocab":{}},"pre_tokenizer":{"type":"UnicodeScripts"}})", "\"UnicodeScripts\""},
      {R"({"model":{"type":"WordLevel","vocab":{}},"decoder":{"type":"CTC"}})", "\"CTC\""},
      {R"({"model":{"type":"WordLevel","vocab":{}},"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}})",
       "trie"},
      {R"({"model":{"type":"WordLevel","vocab":{}},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Removed","invert":false}})",
       "regular expression"},
  };
  for (const auto& [text, wanted] : cases) {
    auto spec = parse_tokenizer_json(text);
    std::string message;
    if (spec.has_value()) {
      const auto tokenizer = Tokenizer::create(*std::move(spec));
      ASSERT_FALSE(tokenizer.has_value()) << text;
      message = tokenizer.error().text;
    } else {
      message = spec.error().text;
    }
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
  }
}

TEST(Detokenizer, CharactersOfSeveralTokensComeWhole) {
  const Tokenizer tokenizer = byte_level();
  Detokenizer stream(tokenizer);
  std::vector<std::string> parts;
  for (const int32_t id : std::vector<int32_t>{0xF0, 0x9F, 0x99, 0x82, 'a', 0xC3, 300, 0xA9, 0xE2, 0x82})
    parts.push_back(stream.push(id));
  parts.push_back(stream.flush());
  const std::vector<std::string> want{"", "", "", "🙂", "a", "", "", "é", "", "", "\uFFFD"};
  EXPECT_EQ(parts, want);
}

TEST(Regex, RunawayExpressionsAreGivenUp) {
  const auto regex = Regex::compile("(a+)+b");
  ASSERT_TRUE(regex.has_value());
  const std::string text(5000, 'a');
  const auto match = regex->find(text, 0);
  EXPECT_TRUE(!match.has_value() || !match->found);
}

TEST(Gguf, SpmMergesByScoreAndFallsBackToBytes) {
  GgufTokenizer gguf;
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<s>", "</s>"};
  gguf.token_types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    gguf.tokens.push_back(text);
    gguf.token_types.push_back(6);
  }
  for (const char* text : {"▁", "a", "b", "ab", "▁a", "ba", "bab"}) {
    gguf.tokens.push_back(text);
    gguf.token_types.push_back(1);
  }
  gguf.scores.assign(gguf.tokens.size(), 0);
  // From 259: ▁ a b ab ▁a ba bab.
  gguf.scores[262] = -1;
  gguf.scores[263] = -3;
  gguf.scores[264] = -2;
  gguf.scores[265] = -4;
  gguf.bos_id = 1;
  gguf.eos_id = 2;
  gguf.unknown_id = 0;
  auto spec = tokenizer_from_gguf(gguf);
  ASSERT_TRUE(spec.has_value()) << spec.error().text;
  const auto tokenizer = Tokenizer::create(*std::move(spec));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().text;
  EXPECT_EQ(tokenizer->encode("ab").value(), (std::vector<int32_t>{1, 259, 262}));        // ▁ ab
  EXPECT_EQ(tokenizer->encode("aba").value(), (std::vector<int32_t>{1, 259, 262, 260}));  // the leftmost ab first
  EXPECT_EQ(tokenizer->encode("bab").value(), (std::vector<int32_t>{1, 259, 265}));       // b ab, then bab
  EXPECT_EQ(tokenizer->encode("é").value(), (std::vector<int32_t>{1, 259, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer->encode("</s>a").value(), (std::vector<int32_t>{1, 2, 263}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab é").value(), true), "ab é");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->end_ids(), std::vector<int32_t>{2});
}

TEST(Gguf, BrokenListsAreRefused) {
  GgufTokenizer gguf;
  gguf.model = "gpt2";
  EXPECT_FALSE(tokenizer_from_gguf(gguf).has_value());
  gguf.tokens = {"a", "b", "ab"};
  gguf.merges = {"a b"};
  gguf.pre = "nobody-knows";
  const auto spec = tokenizer_from_gguf(gguf);
  ASSERT_TRUE(spec.has_value()) << spec.error().text;
  EXPECT_EQ(spec->warnings.size(), 1u);
  gguf.eos_id = 3;
  EXPECT_FALSE(tokenizer_from_gguf(gguf).has_value());
  gguf.eos_id.reset();
  gguf.tokens[0] = "\xFF";
  EXPECT_FALSE(tokenizer_from_gguf(gguf).has_value());
  gguf.tokens[0] = "a";
  gguf.model = "rwkv";
  EXPECT_NE(tokenizer_from_gguf(gguf).error().text.find("rwkv"), std::string::npos);
}

TEST(Utf8, LossyRepairInPiecesEqualsRepairAtOnce) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t n = random() % 12; n > 0; --n) {
      constexpr unsigned char kBytes[] = {'a',  0x80, 0xBF, 0xC3, 0xE2, 0x82, 0xAC, 0xED,
                                          0xA0, 0xF0, 0x9F, 0x98, 0x80, 0xF4, 0x90, 0xFF};
      bytes += static_cast<char>(kBytes[random() % sizeof kBytes]);
    }
    std::string whole;
    EXPECT_EQ(append_utf8_lossy(whole, bytes, true), bytes.size());
    EXPECT_EQ(utf8_invalid_at(whole), kUtf8Valid);
    std::string joined;
    std::string held;
    for (const char c : bytes) {
      held += c;
      held.erase(0, append_utf8_lossy(joined, held, false));
      EXPECT_LE(held.size(), 3u);
    }
    append_utf8_lossy(joined, held, true);
    EXPECT_EQ(joined, whole);
    EXPECT_EQ(utf8_invalid_at(bytes) == kUtf8Valid, whole == bytes);
  }
}

}  // namespace
}  // namespace bolide
