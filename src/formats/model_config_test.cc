#include "formats/model_config.h"

#include <gtest/gtest.h>

namespace bolide {
namespace {

ModelConfig config(const std::string& text) {
  auto parsed = ModelConfig::parse(text, "config.json");
  EXPECT_TRUE(parsed.has_value()) << parsed.error().text;
  return *std::move(parsed);
}

template <class T>
std::string problem_of(const Result<T>& result) {
  return result ? "" : result.error().text;
}

TEST(ModelConfig, GettersNameFileFieldAndType) {
  const ModelConfig c = config(R"({"n": 3, "whole": 4.0, "x": 0.5, "s": "t", "b": true, "none": null,
                                   "list": [1, 2], "words": ["a"], "mixed": [1, "a"], "big": 99999999999999999999,
                                   "object": {"inner": 7}})");
  EXPECT_EQ(*c.integer("n"), 3);
  EXPECT_EQ(*c.integer("whole"), 4);
  EXPECT_EQ(*c.number("n"), 3.0);
  EXPECT_EQ(*c.number("x"), 0.5);
  EXPECT_EQ(*c.string("s"), "t");
  EXPECT_TRUE(*c.boolean("b"));
  EXPECT_EQ(*c.integers("list"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(*c.integers("n"), std::vector<int64_t>{3});
  EXPECT_EQ(*c.strings("words"), std::vector<std::string>{"a"});
  EXPECT_EQ(*c.object("object")->integer("inner"), 7);
  EXPECT_FALSE(c.has("none"));
  EXPECT_EQ(*c.optional_integer("none"), std::nullopt);
  EXPECT_EQ(*c.integer_or("absent", 9), 9);

  EXPECT_EQ(problem_of(c.integer("x")), "config.json: x: is a number with a fraction, expected an integer");
  EXPECT_EQ(problem_of(c.integer("absent")), "config.json: absent: is missing, expected an integer");
  EXPECT_EQ(problem_of(c.integer("none")), "config.json: none: is missing, expected an integer");
  EXPECT_EQ(problem_of(c.integer_or("s", 1)), "config.json: s: is a string, expected an integer");
  EXPECT_EQ(problem_of(c.boolean("n")), "config.json: n: is an integer, expected true or false");
  EXPECT_EQ(problem_of(c.integer_in("n", 4, 8)), "config.json: n: is 3, expected 4 to 8");
  EXPECT_EQ(problem_of(c.object("object")->integer("x")), "config.json: object: x: is missing, expected an integer");
  EXPECT_NE(problem_of(c.integers("mixed")), "");
  EXPECT_NE(problem_of(c.integer("big")), "");
}

TEST(ModelConfig, AliasesGiveFieldsTheirStandardNames) {
  const ModelConfig c = config(R"({"n_embd": 8, "n_layer": "two", "n_inner": null, "hidden_act": "relu"})");
  constexpr FieldAlias kAliases[] = {{"hidden_size", "n_embd"},
                                     {"num_hidden_layers", "n_layer"},
                                     {"intermediate_size", "n_inner"},
                                     {"num_attention_heads", "n_head"},
                                     {"hidden_act", "act"}};
  const ModelConfig named = c.with_aliases(kAliases);
  EXPECT_EQ(*named.integer("hidden_size"), 8);
  EXPECT_EQ(*named.integer("n_embd"), 8);
  EXPECT_FALSE(named.has("intermediate_size"));
  EXPECT_EQ(*named.string("hidden_act"), "relu");
  EXPECT_EQ(problem_of(named.integer("num_hidden_layers")),
            "config.json: n_layer (num_hidden_layers): is a string, expected an integer");
  EXPECT_EQ(problem_of(named.integer("num_attention_heads")),
            "config.json: n_head (num_attention_heads): is missing, expected an integer");
  EXPECT_EQ(problem_of(named.integer("hidden_act")), "config.json: hidden_act: is a string, expected an integer");
  EXPECT_FALSE(c.has("hidden_size"));
  // As an engine keeps it: written and read again, the same aliases change nothing.
  const ModelConfig again = config(named.to_text()).with_aliases(kAliases);
  EXPECT_EQ(again.to_text(), named.to_text());
}

TEST(ModelConfig, RefusesWhatIsNoObject) {
  for (const char* text : {"", "{", "[]", "3", "{\"a\":}", "\xff\xfe", "{\"a\": 1} x"})
    EXPECT_FALSE(ModelConfig::parse(text, "config.json").has_value()) << text;
  EXPECT_FALSE(ModelConfig::parse(std::string(2u << 20, ' '), "config.json").has_value());
  EXPECT_FALSE(ModelConfig::parse("{\"a\":" + std::string(1'000'000, '['), "config.json").has_value());
  const std::string deep = "{\"a\":" + std::string(400'000, '[') + std::string(400'000, ']') + "}";
  EXPECT_NE(problem_of(ModelConfig::parse(deep, "config.json")).find("nests deeper"), std::string::npos);
}

TEST(ModelConfig, BothStylesGiveTheSameRope) {
  const std::string scaling = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": 64, "rope_type": "llama3")";
  const auto four = config(R"({"rope_theta": 500000.0, "torch_dtype": "torch.bfloat16", "rope_scaling": {)" + scaling +
                           R"(}, "max_position_embeddings": 256})");
  const auto five = config(R"({"dtype": "bfloat16", "rope_parameters": {"rope_theta": 500000.0, )" + scaling +
                           R"(}, "max_position_embeddings": 256})");
  for (const ModelConfig& c : {four, five}) {
    const auto rope = c.rope();
    ASSERT_TRUE(rope.has_value()) << rope.error().text;
    EXPECT_EQ(rope->theta, 500000.0);
    EXPECT_EQ(rope->type, RopeType::kLlama3);
    EXPECT_EQ(rope->factor, 8.0);
    EXPECT_EQ(rope->original_context, 64);
    EXPECT_EQ(*c.dtype(), "bfloat16");
  }
}

TEST(ModelConfig, RopeOfEveryType) {
  const auto rope = [](const std::string& text) {
    const auto result = config(text).rope();
    EXPECT_TRUE(result.has_value()) << result.error().text;
    return result ? *result : RopeConfig();
  };
  EXPECT_EQ(rope("{}").theta, 10000.0);
  EXPECT_EQ(rope(R"({"model_type": "mixtral"})").theta, 1e6);
  EXPECT_EQ(rope(R"({"rope_scaling": null, "rope_theta": 5})").theta, 5.0);
  EXPECT_EQ(rope(R"({"partial_rotary_factor": 0.5})").partial_rotary_factor, 0.5);
  EXPECT_EQ(
      rope(R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}})").partial_rotary_factor,
      0.25);
  const auto linear = rope(R"({"rope_scaling": {"type": "linear", "factor": 2}, "max_position_embeddings": 9})");
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 2.0);
  const auto dynamic = rope(R"({"rope_scaling": {"type": "dynamic", "factor": 2,
      "original_max_position_embeddings": 5}, "max_position_embeddings": 9})");
  EXPECT_EQ(dynamic.original_context, 9);  // what transformers scales by
  const auto yarn = rope(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16, "mscale": 0.7,
      "mscale_all_dim": 0.8, "truncate": false, "original_max_position_embeddings": 32}, "max_position_embeddings": 128})");
  EXPECT_EQ(yarn.beta_fast, 16.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_EQ(yarn.mscale, 0.7);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.original_context, 32);
  EXPECT_EQ(yarn.attention_factor, std::nullopt);
  const auto su = rope(R"({"rope_scaling": {"type": "su", "short_factor": [1, 1.5], "long_factor": [2, 3]},
      "original_max_position_embeddings": 32, "max_position_embeddings": 128})");
  EXPECT_EQ(su.type, RopeType::kLongRope);
  EXPECT_EQ(su.factor, 4.0);
  EXPECT_EQ(su.short_factor, (std::vector<double>{1, 1.5}));
  // Parameters per layer type.
  const auto per_type = config(R"({"max_position_embeddings": 9, "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1000000},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000}}})");
  EXPECT_EQ(per_type.rope("sliding_attention")->theta, 10000.0);
  EXPECT_EQ(per_type.rope("full_attention")->factor, 8.0);
  EXPECT_EQ(per_type.rope()->theta, 1e6);
}

TEST(ModelConfig, RefusesBadRope) {
  const auto expect = [](const std::string& text, const std::string& words) {
    EXPECT_NE(problem_of(config(text).rope()).find(words), std::string::npos) << problem_of(config(text).rope());
  };
  expect(R"({"rope_theta": 0})", "rope_theta: is 0");
  expect(R"({"rope_theta": "x"})", "rope_theta: is a string");
  expect(R"({"rope_scaling": 3})", "rope_scaling: is an integer");
  expect(R"({"rope_scaling": {"type": "mrope"}})", "mrope is not supported; known are default, linear");
  expect(R"({"rope_scaling": {"type": "linear", "factor": 2}})", "max_position_embeddings: is missing");
  expect(R"({"max_position_embeddings": 9, "rope_scaling": {"type": "linear"}})", "factor: is missing");
  expect(R"({"max_position_embeddings": 9, "rope_scaling": {"type": "linear", "factor": -1}})", "factor: is -1");
  expect(R"({"max_position_embeddings": 0, "rope_scaling": {"type": "linear", "factor": 2}})", "expected at least 1");
  expect(
      R"({"max_position_embeddings": 9, "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": []}})",
      "long_factor: has 0 numbers");
  expect(R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.5}})",
         "is 1.5, expected 0.0001 to 1");
}

TEST(ModelConfig, GenerationDefaultsComeFromBothFiles) {
  const auto model = config(R"({"eos_token_id": 2, "bos_token_id": 1, "temperature": 9})");
  const auto generation = config(R"({"eos_token_id": [3, 4], "temperature": 0.6, "top_k": 20, "do_sample": true})");
  const auto both = read_generation_config(&generation, model);
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->eos_ids, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(both->bos_id, 1);
  EXPECT_EQ(both->temperature, 0.6);
  EXPECT_EQ(both->top_k, 20);
  EXPECT_EQ(both->top_p, std::nullopt);
  EXPECT_EQ(both->do_sample, true);
  const auto none = config(R"({"eos_token_id": [-1, 7], "pad_token_id": -1})");
  EXPECT_EQ(read_generation_config(nullptr, none)->eos_ids, std::vector<int64_t>{7});
  EXPECT_EQ(read_generation_config(nullptr, none)->pad_id, std::nullopt);
  const auto alone = read_generation_config(nullptr, model);
  EXPECT_EQ(alone->eos_ids, std::vector<int64_t>{2});
  EXPECT_EQ(alone->temperature, std::nullopt);
}

TEST(ModelConfig, Quantisation) {
  const auto of = [](const std::string& text) {
    return config("{\"quantization_config\": " + text + "}").quantization();
  };
  EXPECT_EQ(*config("{}").quantization(), std::nullopt);
  const auto gptq = of(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true, "sym": false,
                           "checkpoint_format": "gptq_v2"})");
  ASSERT_TRUE(gptq.has_value()) << gptq.error().text;
  EXPECT_EQ((*gptq)->group_size, 128);
  EXPECT_TRUE((*gptq)->desc_act);
  EXPECT_FALSE((*gptq)->zero_offset);
  const auto expect = [&](const std::string& text, const std::string& words) {
    EXPECT_NE(problem_of(of(text)).find(words), std::string::npos) << problem_of(of(text));
  };
  expect(R"({"bits": 4})", "quantization_config: quant_method: is missing");
  expect(R"({"quant_method": "bitsandbytes"})", "bitsandbytes is not supported; known are gptq");
  expect(R"({"quant_method": "gptq", "bits": 3, "group_size": 128})", "bits: 3 is not supported");
  expect(R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", "group_size: is 0");
  expect(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "marlin"})", "marlin");
  expect(R"({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"})", "gemv is not supported");
  expect(R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})", "pack-quantized is not supported");
  expect(R"({"quant_method": "fp8", "weight_block_size": [128]})", "weight_block_size");
  const auto inputs = [&](const std::string& fields) {
    return R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {
        "weights": {"type": "float", "num_bits": 8}, "input_activations": {"dynamic": true, )" +
           fields + "}}}}";
  };
  expect(inputs(R"("num_bits": 4)"), "inputs rounded to 4 bits of type float are not supported");
  expect(inputs(R"("type": "int", "num_bits": 8)"), "inputs rounded to 8 bits of type int are not supported");
}

}  // namespace
}  // namespace bolide
