#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bolide/bolide.h"

namespace bolide {
namespace {

namespace fs = std::filesystem;

fs::path checkpoint(const char* name) { return fs::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models" / name; }

nlohmann::json golden(const char* name) {
  std::ifstream file(checkpoint(name) / "golden.json");
  return nlohmann::json::parse(file, nullptr, false);
}

// The text, its ids and the greedy continuation that transformers gave, computed in float32.
class LanguageModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!fs::exists(checkpoint(GetParam()))) GTEST_SKIP() << "tests/golden/models/" << GetParam() << " is not there";
    const auto text = golden(GetParam())["text"];
    text_ = text["text"];
    ids_ = text["ids"].get<std::vector<int32_t>>();
    greedy_ = text["greedy"].get<std::vector<int32_t>>();
    const fs::path gguf = checkpoint(GetParam()) / "model.gguf";
    path_ = fs::exists(gguf) ? gguf : checkpoint(GetParam());
    options_.threads = 1;
    options_.dtype = "f32";
    options_.kv_type = "f32";
    options_.context = static_cast<int>(ids_.size() + greedy_.size() + 1);
  }

  fs::path path_;
  OpenOptions options_;
  std::string text_;
  std::vector<int32_t> ids_, greedy_;
};

TEST_P(LanguageModelTest, GivesTheReferencesTokens) {
  auto model = LanguageModel::open(path_, options_);
  ASSERT_TRUE(model) << model.status().message;
  EXPECT_TRUE(model.status().ok());
  const auto ids = model->tokenize(text_);
  ASSERT_TRUE(ids) << ids.status().message;
  EXPECT_EQ(*ids, ids_);
  EXPECT_EQ(model->detokenize(ids_, true), text_);

  std::string streamed;
  GenerateOptions options;
  options.max_tokens = static_cast<int32_t>(greedy_.size());
  const auto answer = model->complete(text_, options, [&](std::string_view piece) { streamed += piece; });
  ASSERT_TRUE(answer) << answer.status().message;
  // The reference goes on after an end-of-text token; an answer does not.
  ASSERT_LE(answer->tokens.size(), greedy_.size());
  EXPECT_TRUE(std::equal(answer->tokens.begin(), answer->tokens.end(), greedy_.begin()));
  EXPECT_EQ(answer->finish, answer->tokens.size() == greedy_.size() ? Finish::kLength : Finish::kStop);
  EXPECT_EQ(streamed, answer->text);
  EXPECT_EQ(answer->text, model->detokenize(answer->tokens, true));
  EXPECT_EQ(answer->logprobs.size(), answer->tokens.size());
  for (const float logprob : answer->logprobs) EXPECT_LE(logprob, 0);
  EXPECT_EQ(answer->timings.prompt_tokens, static_cast<int32_t>(ids_.size()));
  EXPECT_EQ(answer->timings.computed_tokens, static_cast<int32_t>(ids_.size()));
  EXPECT_GT(answer->timings.prompt_ms, 0);

  // The second time the prompt is in the cache, but for its last token.
  const auto again = model->generate(ids_, options);
  ASSERT_TRUE(again) << again.status().message;
  EXPECT_EQ(again->tokens, answer->tokens);
  EXPECT_EQ(again->timings.computed_tokens, 1);
}

TEST_P(LanguageModelTest, SamplesStopsAndCancels) {
  auto opened = LanguageModel::open(path_, options_);
  ASSERT_TRUE(opened) << opened.status().message;
  LanguageModel model = *std::move(opened);
  GenerateOptions options;
  options.max_tokens = 12;
  options.sampling = {.temperature = 1.5f, .seed = 7};
  const auto drawn = model.generate(ids_, options), same = model.generate(ids_, options);
  options.sampling.seed = 8;
  const auto other = model.generate(ids_, options);
  ASSERT_TRUE(drawn && same && other);
  EXPECT_EQ(drawn->tokens, same->tokens);
  EXPECT_NE(drawn->tokens, other->tokens);

  options.sampling = {};
  const auto whole = model.generate(ids_, options);
  ASSERT_TRUE(whole);
  const auto visible = std::find_if(whole->text.begin(), whole->text.end(), [](char c) { return c > ' ' && c < 127; });
  if (visible != whole->text.end()) {
    options.stop = {std::string(1, *visible)};
    const auto stopped = model.generate(ids_, options);
    ASSERT_TRUE(stopped);
    EXPECT_EQ(stopped->text, whole->text.substr(0, static_cast<size_t>(visible - whole->text.begin())));
    EXPECT_EQ(stopped->finish, Finish::kStop);
  }
  const std::atomic<bool> cancelled{true};
  options.cancel = &cancelled;
  const auto none = model.generate(ids_, options);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->finish, Finish::kCancelled);
  EXPECT_TRUE(none->tokens.empty());
}

TEST_P(LanguageModelTest, RefusesWithASentence) {
  auto model = LanguageModel::open(path_, options_);
  ASSERT_TRUE(model) << model.status().message;
  const auto refused = [](const auto& result, StatusCode code, std::string_view part) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.status().code, code);
    EXPECT_NE(result.status().message.find(part), std::string::npos) << result.status().message;
  };
  const std::vector<int32_t> beyond = {1, model->info().vocab}, negative = {-1}, empty, longer(1000, 1);
  refused(model->generate(beyond), StatusCode::kInvalid, "vocabulary");
  refused(model->generate(negative), StatusCode::kInvalid, "vocabulary");
  refused(model->generate(empty), StatusCode::kInvalid, "no tokens");
  refused(model->generate(longer), StatusCode::kInvalid, "context");
  refused(model->chat({}), StatusCode::kInvalid, "message");
  refused(model->complete("\xff"), StatusCode::kInvalid, "UTF-8");
  refused(model->generate(ids_, {.max_tokens = -1}), StatusCode::kInvalid, "max_tokens");
  GenerateOptions wrong;
  wrong.sampling.temperature = std::nanf("");
  refused(model->generate(ids_, wrong), StatusCode::kInvalid, "temperature");
  wrong.sampling = {.top_p = 1.5f};
  refused(model->generate(ids_, wrong), StatusCode::kInvalid, "top_p");
  // None of it left a mark.
  const auto answer = model->generate(ids_, {.max_tokens = 1});
  ASSERT_TRUE(answer) << answer.status().message;
  EXPECT_EQ(answer->tokens, std::vector<int32_t>(greedy_.begin(), greedy_.begin() + 1));

  OpenOptions options = options_;
  options.isa = "z80";
  refused(LanguageModel::open(path_, options), StatusCode::kInvalid, "isa");
  options = options_;
  options.dtype = "f64";
  refused(LanguageModel::open(path_, options), StatusCode::kInvalid, "dtype");
  options = options_;
  options.threads = -3;
  refused(LanguageModel::open(path_, options), StatusCode::kInvalid, "threads");
  refused(LanguageModel::open(path_ / "nothing.gguf", options_), StatusCode::kNotFound, "nothing.gguf");
}

TEST_P(LanguageModelTest, ReportsWhatItIsAndProgress) {
  size_t calls = 0, last_done = 0, last_total = 0;
  options_.on_progress = [&](size_t done, size_t total) { ++calls, last_done = done, last_total = total; };
  const auto model = LanguageModel::open(path_, options_);
  ASSERT_TRUE(model) << model.status().message;
  EXPECT_GT(calls, 0u);
  EXPECT_EQ(last_done, last_total);
  const ModelInfo& info = model->info();
  EXPECT_EQ(info.threads, 1);
  EXPECT_EQ(info.context, options_.context);
  EXPECT_GT(info.vocab, 0);
  EXPECT_FALSE(info.machine.empty());
  EXPECT_EQ(info.format, path_.extension() == ".gguf" ? "gguf" : "safetensors");
  const auto text = model->render({{"user", "Two"}, {"assistant", "and"}, {"user", "two"}});
  ASSERT_TRUE(text) << text.status().message;
  EXPECT_NE(text->find("Two"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, LanguageModelTest, ::testing::Values("qwen2", "llama-gguf-q4_0", "mixtral"),
                         [](const auto& parameter) {
                           std::string name(parameter.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Expected, AskingAnErrorForAValueEndsTheProgram) {
  const Expected<int> failed(Status{StatusCode::kNotFound, "model.gguf is not there"});
  EXPECT_DEATH((void)failed.value(), "model.gguf is not there");
}

}  // namespace
}  // namespace bolide
