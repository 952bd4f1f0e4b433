// Generated models, end to end: a name in, logits out.
#include "app/test_models.h"

namespace bolide {
namespace {

using namespace test;

TEST(SynthModel, RunsWithoutAFileInEveryType) {
  for (const char* type :
       {"bf16", "f32", "f16", "fp8", "int8", "w4", "gptq", "q8_0", "q6_k", "q5_k", "q4_k", "q4_1", "q4_0"}) {
    ModelOptions options;
    options.threads = 1;
    options.context = 64;
    options.tokens_per_step = 32;
    Model model = open_path(fmt::format("synth:smollm2-135m:{}:layers=2", type), options);
    EXPECT_EQ(model.format, "synth");
    EXPECT_EQ(model.runner->vocab(), 49152);
    EXPECT_TRUE(model.stop_ids.empty());
    const auto logits = logits_of(model, random_tokens(model, 20, 1), {9});
    float low = logits[0], high = logits[0];
    for (const float logit : logits) {
      ASSERT_TRUE(std::isfinite(logit)) << type;
      low = std::min(low, logit), high = std::max(high, logit);
    }
    EXPECT_GT(high - low, 1) << type;
    EXPECT_LT(high - low, 100) << type;
    EXPECT_NE(logits_of(model, random_tokens(model, 20, 2), {9}), logits) << type;
  }
}

// The blocks differ: biases, fused tensors with a window, experts.
TEST(SynthModel, EveryFamilyBuildsItsGraph) {
  for (const char* name :
       {"llama-3-8b", "llama-3-70b", "qwen2-1.5b", "qwen2-7b", "phi-3-mini", "mixtral-8x7b", "long-1b"})
    for (const char* type : {"bf16", "fp8", "int8", "w4", "gptq", "q4_k"}) {
      const auto loaded = load_model(fmt::format("synth:{}:{}", name, type));
      ASSERT_TRUE(loaded.has_value()) << loaded.error().text;
      const auto graph = build_graph(*loaded, ComputeMode::kAuto);
      ASSERT_TRUE(graph.has_value()) << graph.error().text;
      std::set<std::string> unused;
      for (const std::string& tensor : loaded->weights->names()) unused.insert(tensor);
      for (size_t i = 0; i < graph->value_count(); ++i)
        for (const WeightPart& part : graph->value(static_cast<ValueId>(i)).parts) unused.erase(part.tensor);
      EXPECT_TRUE(unused.empty()) << name << ": " << *unused.begin();
    }
}

TEST(SynthModel, TokenizerTakesAnyTextAndPrintsAnyId) {
  const auto loaded = load_model("synth:smollm2-135m:layers=1");
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text;
  const auto tokenizer = make_tokenizer(*loaded);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().text;
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  for (const std::string text : {"Hello, world!", "\n\t  a", "caf\u00e9 \u5929\u5730 \U0001f600", ""}) {
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.has_value()) << ids.error().text;
    std::string back;
    for (const int32_t id : *ids) back += tokenizer->token_bytes(id);
    EXPECT_EQ(back, text);
  }
  std::set<std::string> texts;
  for (int32_t id = 0; id < 49152; ++id) {
    const std::string text(tokenizer->token_bytes(id));
    EXPECT_FALSE(text.empty()) << id;
    EXPECT_TRUE(texts.insert(text).second) << id;
  }
  const auto again = tokenizer->encode(tokenizer->token_bytes(40000));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, std::vector<int32_t>{40000});
}

TEST(SynthModel, WrongNamesAreAnswered) {
  const auto missing = load_model("synth:llama-4");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().text.find("known are llama-3-8b"), std::string::npos) << missing.error().text;
  const auto config = load_model("synth:llama-3-8b", {.config = "config.json"});
  EXPECT_FALSE(config.has_value());
}

}  // namespace
}  // namespace bolide
