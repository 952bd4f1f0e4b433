// Checkpoints whose configuration and tensors do not belong together: an error that names the file, the field or tensor
// and both values, before anything is sized by a hostile number.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/engine.h"
#include "app/model_flags.h"
#include "app/test_models.h"
#include "formats/test_files.h"

namespace bolide {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// Peak resident memory of this process so far.
size_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

// A copy of a golden checkpoint that can be spoilt.
class Spoilt {
 public:
  explicit Spoilt(const std::string& name) : config_(read_json(golden_model(name) / "config.json")) {
    for (const char* file : {"model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"})
      std::filesystem::copy(golden_model(name) / file, folder_.path() / file);
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  // The refusal with these fields of config.json replaced (null: taken out).
  std::string refusal(const Json& fields) {
    Json config = config_;
    for (const auto& [key, value] : fields.items()) {
      if (value.is_null())
        config.erase(key);
      else
        config[key] = value;
    }
    folder_.write("config.json", config.dump());
    return refusal();
  }
  std::string refusal() {
    const size_t before = peak_bytes();
    ModelOptions options;
    options.threads = 1;
    const auto model = open_model(path(), options);
    EXPECT_LT(peak_bytes() - before, size_t{100} << 20);
    return model.has_value() ? "" : model.error().text;
  }
  // Changes the safetensors header by replacing text of the same length.
  void rename(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    std::ifstream in(path() / "model.safetensors", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    const size_t at = bytes.find('"' + from + '"');
    ASSERT_NE(at, std::string::npos) << from;
    folder_.write("model.safetensors", bytes.replace(at + 1, from.size(), to));
  }

 private:
  TemporaryFolder folder_;
  Json config_;
};

void expect_names(const std::string& text, std::initializer_list<const char*> parts) {
  EXPECT_NE(text, "");
  EXPECT_LT(text.size(), 600u) << text;
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

TEST(Refusals, ConfigurationsThatDoNotFitTheTensors) {
  Spoilt model("llama-bias");
  ASSERT_EQ(model.refusal(Json::object()), "");
  const char* file = "config.json";
  expect_names(model.refusal({{"num_hidden_layers", 3}}), {file, "num_hidden_layers", "3", "2"});
  expect_names(model.refusal({{"num_hidden_layers", 1}}), {file, "num_hidden_layers", "1", "2"});
  expect_names(model.refusal({{"num_hidden_layers", 100000}}), {file, "num_hidden_layers", "100000", "2"});
  expect_names(model.refusal({{"num_hidden_layers", 1000000000000}}), {file, "num_hidden_layers"});
  expect_names(model.refusal({{"num_hidden_layers", 0}}), {file, "num_hidden_layers"});
  expect_names(model.refusal({{"num_hidden_layers", -1}}), {file, "num_hidden_layers"});
  expect_names(model.refusal({{"num_hidden_layers", "two"}}), {file, "num_hidden_layers"});
  expect_names(model.refusal({{"num_hidden_layers", nullptr}}), {file, "num_hidden_layers"});
  expect_names(model.refusal({{"num_attention_heads", 8}}), {"k_proj", "[16, 32]"});
  expect_names(model.refusal({{"num_attention_heads", 3}}), {file, "3"});
  expect_names(model.refusal({{"num_key_value_heads", 4}}), {"k_proj", "num_key_value_heads"});
  expect_names(model.refusal({{"num_key_value_heads", 3}}), {file, "num_key_value_heads", "3", "4"});
  expect_names(model.refusal({{"num_key_value_heads", 0}}), {file, "num_key_value_heads"});
  expect_names(model.refusal({{"head_dim", 1 << 30}}), {file, "head_dim"});
  expect_names(model.refusal({{"head_dim", 16}}), {"q_proj", "head_dim"});
  expect_names(model.refusal({{"hidden_size", 64}}), {"hidden_size", "64", "32"});
  expect_names(model.refusal({{"hidden_size", 1000000000}}), {"hidden_size"});
  expect_names(model.refusal({{"intermediate_size", 54}}), {"intermediate_size", "54", "53"});
  expect_names(model.refusal({{"intermediate_size", 1 << 20}}), {"intermediate_size"});
  expect_names(model.refusal({{"vocab_size", 271}}), {"vocab_size", "271", "272"});
  expect_names(model.refusal({{"vocab_size", 1 << 25}}), {"vocab_size", "272"});
  expect_names(model.refusal({{"max_position_embeddings", 0}}), {file, "max_position_embeddings"});
  expect_names(model.refusal({{"max_position_embeddings", -5}}), {file, "max_position_embeddings"});
  // Only the caches that are asked for are made: a model made for 10^15 tokens is none the worse.
  EXPECT_EQ(model.refusal({{"max_position_embeddings", 1000000000000000}}), "");
  expect_names(model.refusal({{"hidden_act", "mish"}}), {file, "hidden_act", "mish", "silu"});
  expect_names(model.refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", -1}}}}), {file});
  expect_names(model.refusal({{"rope_scaling", {{"type", "spiral"}, {"factor", 2}}}}), {file, "spiral"});
  expect_names(model.refusal({{"rope_theta", 0}}), {file});
}

TEST(Refusals, UnknownArchitecturesNameTheNearest) {
  Spoilt model("llama-bias");
  expect_names(model.refusal({{"architectures", {"Llama4ForCausalLM"}}}), {"Llama4ForCausalLM", "LlamaForCausalLM"});
  expect_names(model.refusal({{"architectures", {"Qwen3MoeForCausalLM"}}}),
               {"Qwen3MoeForCausalLM", "Qwen3ForCausalLM"});
  EXPECT_NE(model.refusal({{"architectures", {std::string(100000, 'x')}}}), "");
  EXPECT_NE(model.refusal({{"architectures", Json::array()}}), "");
  // Without one, model_type says which family it is.
  EXPECT_EQ(model.refusal({{"architectures", nullptr}}), "");
  expect_names(model.refusal({{"architectures", nullptr}, {"model_type", "lama"}}), {"model_type", "lama", "llama"});
  expect_names(model.refusal({{"architectures", nullptr}, {"model_type", nullptr}}), {"config.json", "architectures"});
  // The family comes before anything that it may call otherwise.
  expect_names(model.refusal({{"architectures", {"Llama4ForCausalLM"}}, {"hidden_size", nullptr}}), {"not supported"});
}

TEST(Refusals, MissingTensorsAreNamed) {
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                           "model.layers.0.self_attn.q_proj.bias", "model.norm.weight", "model.embed_tokens.weight"}) {
    Spoilt model("llama-bias");
    std::string other = name;
    other[6] = '_';
    model.rename(name, other);
    expect_names(model.refusal(Json::object()), {name, "missing"});
  }
  Spoilt mixtral("mixtral");
  mixtral.rename("model.layers.1.block_sparse_moe.experts.2.w3.weight",
                 "model.layers.1.block_sparse_moe.experts.2.w4.weight");
  expect_names(mixtral.refusal(Json::object()), {"experts.2.w3.weight", "missing"});
}

TEST(Refusals, ExpertsThatAreNotThere) {
  Spoilt model("mixtral");
  ASSERT_EQ(model.refusal(Json::object()), "");
  for (const int64_t experts : {int64_t{3}, int64_t{6}, int64_t{4096}})
    expect_names(model.refusal({{"num_local_experts", experts}}), {"block_sparse_moe.gate", "[5, 32]"});
  for (const int64_t experts : {int64_t{0}, int64_t{-5}, int64_t{1} << 40})
    expect_names(model.refusal({{"num_local_experts", experts}}), {"config.json", "num_local_experts"});
  expect_names(model.refusal({{"num_experts_per_tok", 6}}), {"config.json", "num_experts_per_tok"});
  expect_names(model.refusal({{"num_experts_per_tok", 0}}), {"config.json", "num_experts_per_tok"});
}

TEST(Refusals, LayerTypesOfAnotherCount) {
  Spoilt model("qwen2");
  const Json sliding = {{"use_sliding_window", true}, {"sliding_window", 8}};
  Json fields = sliding;
  fields["layer_types"] = {"sliding_attention"};
  expect_names(model.refusal(fields), {"config.json", "layer_types", "1", "2"});
  fields["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(model.refusal(fields), "");
}

TEST(Refusals, ATokenizerOfAnotherModel) {
  Spoilt model("llama-bias");
  Json tokenizer = read_json(model.path() / "tokenizer.json");
  tokenizer["added_tokens"].push_back({{"id", 300},
                                       {"content", "<|far|>"},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false},
                                       {"special", true}});
  std::ofstream(model.path() / "tokenizer.json") << tokenizer.dump();
  expect_names(model.refusal(Json::object()), {"301", "272", "different models"});
  std::filesystem::remove(model.path() / "tokenizer.json");
  expect_names(model.refusal(), {"tokenizer"});
}

TEST(Refusals, WeightsThatAreNoNumbers) {
  for (const char* name : {"model.layers.0.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight"}) {
    Spoilt model("llama-bias");
    ASSERT_EQ(model.refusal(Json::object()), "");
    const auto file = model.path() / "model.safetensors";
    std::ifstream in(file, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    in.close();
    const auto header_bytes = load_unaligned<uint64_t>(as_bytes(bytes).data());
    const Json header = Json::parse(bytes.substr(8, header_bytes));
    const size_t at = 8 + header_bytes + header[name]["data_offsets"][0].get<size_t>() + 10 * 2;
    bytes[at] = '\xc0', bytes[at + 1] = '\x7f';  // a bf16 NaN
    std::ofstream(file, std::ios::binary) << bytes;
    ModelOptions options;
    options.threads = 1;
    auto model_or = open_model(model.path(), options);
    if (std::string_view(name) != "model.embed_tokens.weight") {
      ASSERT_FALSE(model_or.has_value()) << name;
      expect_names(model_or.error().text, {"model.safetensors", name});
      continue;
    }
    // A table whose rows are read as the file has them: found when the row is used, and the logits say so.
    if (!model_or.has_value()) continue;
    Generator generator(*model_or->runner, model_or->tokenizer);
    GenerateRequest request;
    request.prompt = {1, 0, 2};
    request.tokens_max = 2;
    const auto result = generator.generate(request, [](std::string_view) {});
    ASSERT_FALSE(result.has_value());
    expect_names(result.error().text, {"model.safetensors", name, "row 0", "NaN", "damaged"});
  }
}

TEST(Refusals, NumbersThatArithmeticCannotBear) {
  Spoilt model("llama-bias");
  const char* file = "config.json";
  for (const double bad : {1e-300, 0., -1., 1e300}) {
    expect_names(model.refusal({{"rope_theta", bad}}), {file, "rope_theta", "expected"});
    expect_names(model.refusal({{"rms_norm_eps", bad}}), {file, "rms_norm_eps", "expected"});
    expect_names(model.refusal({{"partial_rotary_factor", bad}}), {file, "partial_rotary_factor", "expected"});
    for (const char* type : {"linear", "dynamic", "yarn"})
      expect_names(model.refusal({{"rope_scaling", {{"type", type}, {"factor", bad}}}}), {file, "factor", "expected"});
    for (const char* key : {"attention_factor", "beta_fast", "beta_slow"})
      expect_names(model.refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", 4}, {key, bad}}}}),
                   {file, key, "expected"});
  }
  for (const double bad : {-1., 1e300})
    expect_names(model.refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", 4}, {"mscale", bad}}}}),
                 {file, "mscale", "expected"});
  EXPECT_EQ(model.refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", 4}}}}), "");
  expect_names(
      model.refusal({{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1}}, {"long_factor", {1, 1}}}}}),
      {file, "longrope", "2"});
  expect_names(
      model.refusal({{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1}}, {"long_factor", {1, 1e-300}}}}}),
      {file, "long_factor[1]", "expected"});
  Spoilt mistral("mistral-window");
  expect_names(mistral.refusal({{"sliding_window", -5}}), {file, "sliding_window", "-5"});
}

TEST(Refusals, JsonThatDoesNotParseSaysWhere) {
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    Spoilt model("llama-bias");
    ASSERT_EQ(model.refusal(Json::object()), "");
    std::ofstream(model.path() / name) << "{\n  \"\u00e9\": 1,\n  \"b\" 2}";
    expect_names(model.refusal(), {name, "line 3, column 7", "'2'"});
    std::ofstream(model.path() / name) << "{\n  \"a\": [1,";
    expect_names(model.refusal(), {name, "line 2"});
    std::ofstream(model.path() / name) << std::string(1000000, '[');
    expect_names(model.refusal(), {name, "deeper"});
  }
}

TEST(Refusals, ACheckSeesTheModelBeforeItsWeightsArePacked) {
  size_t packed = 0;
  const auto count = [&](PackProgress) { ++packed; };
  const FunctionRef<void(PackProgress)> progress(count);
  const auto refuse = [](const ModelOutline& outline) -> Result<> {
    EXPECT_EQ(outline.vocab, 272);
    return prompt_fits(1000, outline.context);
  };
  const OutlineCheck check(refuse);
  ModelOptions options;
  options.threads = 1;
  options.context = 1000;
  const auto model = open_model(golden_model("llama-bias"), options, &progress, &check);
  ASSERT_FALSE(model.has_value());
  expect_names(model.error().text, {"1000 tokens", "--context"});
  EXPECT_EQ(packed, 0u);
  options.context = 1001;
  EXPECT_TRUE(open_model(golden_model("llama-bias"), options, &progress, &check).has_value());
  EXPECT_GT(packed, 0u);
  // A cache that cannot be had is refused there too.
  packed = 0;
  options.context = INT32_MAX;
  EXPECT_FALSE(open_model(golden_model("llama-bias"), options, &progress).has_value());
  EXPECT_EQ(packed, 0u);
}

TEST(Refusals, DevicesThatAreNone) {
  for (const char* device : {"cuda:x", "cuda:", "cuda:-1", "cuda:999999999999", "cuda:0x1", "cudax", "cpu:3", ""}) {
    ModelConfigFlags flags;
    flags.device = device;
    const auto options = to_model_options(flags);
    ASSERT_FALSE(options.has_value()) << device;
    expect_names(options.error().text, {"--device", device, "expected", "cuda:N"});
  }
}

TEST(Refusals, NoMemoryForTheCache) {
  ModelOptions options;
  options.threads = 1;
  options.context = INT32_MAX;
  const size_t before = peak_bytes();
  const auto model = open_model(golden_model("llama-bias"), options);
  EXPECT_LT(peak_bytes() - before, size_t{100} << 20);
  ASSERT_FALSE(model.has_value());
  expect_names(model.error().text, {"KV cache", "--context", "available"});
}

}  // namespace
}  // namespace bolide
