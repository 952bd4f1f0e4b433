#include "eval/tokenizer_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include "formats/tokenizer_json.h"
#include "formats/xz.h"

namespace bolide {
namespace {

std::filesystem::path shared_folder() {
  const char* set = std::getenv("BOLIDE_SHARED");
  return set != nullptr ? std::filesystem::path(set) : std::filesystem::path(BOLIDE_SOURCE_DIR) / ".." / "shared";
}

void expect_golden(const std::filesystem::path& folder) {
  const auto checks = check_tokenizer_golden(folder);
  ASSERT_TRUE(checks.has_value()) << checks.error().text;
  for (const TokenizerCheck& check : *checks) {
    EXPECT_TRUE(check.pass()) << folder.filename() << " " << check.check << ": " << check.got << " of " << check.count
                              << " differ, first " << check.first_difference;
    EXPECT_GT(check.count, 0);
  }
}

TEST(TokenizerGolden, PublishedTokenizers) {
  const std::filesystem::path root = shared_folder() / "data" / "tokenizers";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no reference data at " << root;
  for (const auto& folder : std::filesystem::directory_iterator(root)) {
    expect_golden(folder.path());
    const auto checks = check_tokenizer_golden(folder.path());
    ASSERT_TRUE(checks.has_value());
    EXPECT_TRUE(std::any_of(checks->begin(), checks->end(),
                            [](const TokenizerCheck& c) { return c.check == "chat.text" && c.count > 10; }));
  }
}

TEST(TokenizerGolden, ModelFolders) {
  const std::filesystem::path root = shared_folder() / "data" / "models";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no reference data at " << root;
  for (const auto& folder : std::filesystem::directory_iterator(root)) expect_golden(folder.path());
}

// Small tokenizers of every kind, made by tools/golden/make_tokenizers.py.
TEST(TokenizerGolden, GeneratedTokenizers) {
  const char* set = std::getenv("BOLIDE_TOKENIZER_GOLDEN");
  const std::filesystem::path path =
      set != nullptr ? std::filesystem::path(set)
                     : std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "tokenizers" / "generated.json";
  const auto text = read_file_or_xz(path, size_t{256} << 20);
  ASSERT_TRUE(text.has_value()) << text.error().text;
  const nlohmann::json document = nlohmann::json::parse(*text, nullptr, false);
  ASSERT_TRUE(document.is_object());
  EXPECT_GT(document["tokenizers"].size(), 30u);
  for (const auto& entry : document["tokenizers"]) {
    const std::string name = entry["name"];
    auto spec = parse_tokenizer_json(entry["tokenizer"].dump());
    ASSERT_TRUE(spec.has_value()) << name << ": " << spec.error().text;
    const auto tokenizer = Tokenizer::create(*std::move(spec));
    EXPECT_TRUE(tokenizer.has_value()) << name << ": " << tokenizer.error().text;
    if (!tokenizer.has_value()) continue;
    const auto checks = check_tokenizer_cases(entry["golden"].dump(), *tokenizer, *tokenizer);
    ASSERT_TRUE(checks.has_value()) << name << ": " << checks.error().text;
    for (const TokenizerCheck& check : *checks) {
      EXPECT_TRUE(check.pass()) << name << " " << check.check << ": " << check.got << " of " << check.count
                                << " differ, first " << check.first_difference;
    }
  }
}

TEST(TokenizerGolden, OwnModelFolders) {
  int checked = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator(std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models")) {
    if (!std::filesystem::exists(folder.path() / "tokenizer.json")) continue;  // a GGUF file holds its own
    expect_golden(folder.path());
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

TEST(TokenizerGolden, MissingFolderIsAnError) {
  const auto checks = check_tokenizer_golden("/nowhere/at/all");
  ASSERT_FALSE(checks.has_value());
  EXPECT_EQ(checks.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace bolide
