#include "load/load.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "formats/safetensors.h"

namespace bolide {
namespace {

std::filesystem::path shared_models() {
  const char* shared = std::getenv("BOLIDE_SHARED");
  return std::filesystem::path(shared != nullptr ? shared : BOLIDE_SOURCE_DIR "/../shared") / "data" / "models";
}

TEST(Load, ReadsEverySharedCheckpointInBothStyles) {
  if (!std::filesystem::exists(shared_models())) GTEST_SKIP() << shared_models() << " is not there; set BOLIDE_SHARED";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shared_models())) {
    const auto model = load_model(entry.path());
    ASSERT_TRUE(model.has_value()) << model.error().text;
    EXPECT_TRUE(model->weights->has("model.embed_tokens.weight"));
    EXPECT_FALSE(model->tokenizer.tokenizer_json.empty());
    EXPECT_EQ(model->generation.eos_ids, std::vector<int64_t>{2});
    const auto rope = model->config.rope();
    ASSERT_TRUE(rope.has_value()) << rope.error().text;
    ++count;
    const auto other = entry.path() / "config.v5.json";
    if (!std::filesystem::exists(other)) continue;
    const auto again = load_model(entry.path(), {.config = other});
    ASSERT_TRUE(again.has_value()) << again.error().text;
    const auto rope_again = again->config.rope();
    ASSERT_TRUE(rope_again.has_value()) << rope_again.error().text;
    EXPECT_EQ(rope->theta, rope_again->theta);
    EXPECT_EQ(rope->type, rope_again->type);
    EXPECT_EQ(rope->factor, rope_again->factor);
    EXPECT_EQ(rope->original_context, rope_again->original_context);
    EXPECT_EQ(*model->config.dtype(), *again->config.dtype());
  }
  EXPECT_GE(count, 10);
}

TEST(Load, ExpandsQuantisedCheckpoints) {
  if (!std::filesystem::exists(shared_models())) GTEST_SKIP() << shared_models() << " is not there; set BOLIDE_SHARED";
  for (const char* name : {"llama-gptq-int4-g32", "llama-awq-int4-g64", "llama-fp8-tensor"}) {
    const auto model = load_model(shared_models() / name);
    ASSERT_TRUE(model.has_value()) << model.error().text;
    const std::string weight = "model.layers.0.self_attn.k_proj.weight";
    const auto got = read_floats(*model->weights, weight);
    ASSERT_TRUE(got.has_value()) << got.error().text;
    const auto golden = SafetensorsSource::open_file(shared_models() / name / "golden.safetensors");
    ASSERT_TRUE(golden.has_value()) << golden.error().text;
    const auto want = read_floats(**golden, "dequantised." + weight);
    ASSERT_TRUE(want.has_value()) << want.error().text;
    EXPECT_EQ((*golden)->find("dequantised." + weight)->shape, model->weights->find(weight)->shape);
    EXPECT_EQ(*got, *want) << name;
    EXPECT_EQ(model->weights->find(weight)->rounds_input_to_fp8, std::string_view(name) == "llama-fp8-tensor");
    EXPECT_FALSE(model->weights->find("model.norm.weight")->rounds_input_to_fp8);
    for (const std::string& tensor : model->weights->names()) {
      EXPECT_FALSE(tensor.ends_with("qweight") || tensor.ends_with("scales") || tensor.ends_with("weight_scale"));
      EXPECT_TRUE(model->weights->open(tensor).has_value()) << tensor;
    }
  }
}

}  // namespace
}  // namespace bolide
