#include "load/load.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "formats/safetensors.h"
#include "formats/test_files.h"

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

TEST(Load, ReadsQuantisedCheckpoints) {
  if (!std::filesystem::exists(shared_models())) GTEST_SKIP() << shared_models() << " is not there; set BOLIDE_SHARED";
  for (const char* name : {"llama-gptq-int4-g32", "llama-awq-int4-g64", "llama-fp8-tensor"}) {
    const auto model = load_model(shared_models() / name);
    ASSERT_TRUE(model.has_value()) << model.error().text;
    const std::string weight = "model.layers.0.self_attn.k_proj.weight";
    const auto got = read_floats(*model->weights, weight);
    ASSERT_TRUE(got.has_value()) << got.error().text;
    const WeightInfo& info = *model->weights->find(weight);
    EXPECT_TRUE(info.quant != nullptr || info.dtype == DType::kF8E4M3) << name;
    const auto golden = SafetensorsSource::open_file(shared_models() / name / "golden.safetensors");
    ASSERT_TRUE(golden.has_value()) << golden.error().text;
    const auto want = read_floats(**golden, "dequantised." + weight);
    ASSERT_TRUE(want.has_value()) << want.error().text;
    EXPECT_EQ((*golden)->find("dequantised." + weight)->shape, model->weights->find(weight)->shape);
    EXPECT_EQ(*got, *want) << name;
    EXPECT_EQ(model->weights->find(weight)->rounds_input_to_fp8, std::string_view(name) == "llama-fp8-tensor");
    EXPECT_FALSE(model->weights->find("model.norm.weight")->rounds_input_to_fp8);
    for (const std::string& tensor : model->weights->names()) {
      EXPECT_FALSE(tensor.ends_with("qweight") || tensor.ends_with("scales"));
      EXPECT_TRUE(!tensor.ends_with("weight_scale") || model->weights->find(tensor)->shape.rank == 1);
      EXPECT_TRUE(model->weights->open(tensor).has_value()) << tensor;
    }
  }
}

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";

const std::string kConfig = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 2,
    "num_attention_heads": 1, "vocab_size": 3})";

// The embedding [3, 2], the final norm and the norm of layer 0, all zero.
std::string tiny_weights() {
  return test::safetensors_file(
      fmt::format("{{{},{},{}}}", test::safetensors_entry("model.embed_tokens.weight", "F32", "[3,2]", 0, 24),
                  test::safetensors_entry("model.norm.weight", "F32", "[2]", 24, 32),
                  test::safetensors_entry("model.layers.0.input_layernorm.weight", "F32", "[2]", 32, 40)),
      std::string(40, '\0'));
}

TEST(Load, ReadsAMinimalFolder) {
  const test::TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("model.safetensors", tiny_weights());
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "no"},
                                            {"name": "default", "template": "yes"}]})");
  auto model = load_model(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(model->chat_template, "yes");
  EXPECT_EQ(model->weights->names().size(), 3u);
  folder.write("chat_template.jinja", "file");
  model = load_model(folder.path() / "");
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(model->chat_template, "file");
  EXPECT_EQ(model->name, folder.path().filename());
}

TEST(Load, DoublesAreRoundedToFloats) {
  const test::TemporaryFolder folder;
  folder.write("config.json", kConfig);
  const double values[] = {0.1, -2, 1e-50, 16777217};
  std::string bytes;
  for (const double v : values) bytes += test::raw<double>(v);
  folder.write(
      "model.safetensors",
      test::safetensors_file(
          fmt::format("{{{},{},{}}}", test::safetensors_entry("model.embed_tokens.weight", "F32", "[3,2]", 0, 24),
                      test::safetensors_entry("model.norm.weight", "F32", "[2]", 24, 32),
                      test::safetensors_entry("model.layers.0.mlp.up_proj.weight", "F64", "[2,2]", 32, 64)),
          std::string(32, '\0') + bytes));
  const auto model = load_model(folder.path());
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(model->weights->find("model.embed_tokens.weight")->dtype, DType::kF32);
  EXPECT_EQ(model->weights->find("model.layers.0.mlp.up_proj.weight")->dtype, DType::kF32);
  const auto weight = model->weights->open("model.layers.0.mlp.up_proj.weight");
  ASSERT_TRUE(weight.has_value()) << weight.error().text;
  ASSERT_EQ(weight->bytes.size(), 16u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(load_unaligned<float>(weight->bytes.data() + i * 4), static_cast<float>(values[i]));
}

TEST(Load, AnEmptyTokenizerConfigIsRefused) {
  const test::TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("model.safetensors", tiny_weights());
  EXPECT_TRUE(load_model(folder.path()).has_value());
  folder.write("tokenizer_config.json", "");
  const auto model = load_model(folder.path());
  ASSERT_FALSE(model.has_value());
  EXPECT_NE(model.error().text.find("tokenizer_config.json: is empty"), std::string::npos) << model.error().text;
}

TEST(Load, SaysWhatIsWrongWithAPath) {
  const test::TemporaryFolder folder;
  const auto expect = [&](const std::filesystem::path& path, const std::string& words) {
    const auto model = load_model(path);
    ASSERT_FALSE(model.has_value()) << path;
    EXPECT_NE(model.error().text.find(words), std::string::npos) << model.error().text;
    EXPECT_LT(model.error().text.size(), 400u);
  };
  expect("", "no such file or folder");
  expect(folder.path() / "absent", "no such file or folder");
  expect("organisation/model-7B", "download it");
  expect(folder.write("pytorch_model.bin", "PK"), "convert the model to safetensors");
  expect(folder.write("model.pth", "PK"), "convert the model to safetensors");
  expect(folder.write("model.onnx", "x"), "ONNX");
  expect(folder.write("model.safetensors", "x"), "give the folder");
  expect(folder.write("config.json", kConfig), "give the folder");
  expect(folder.write("notes.txt", "hello"), "is no GGUF file");
  expect(folder.write("bad.gguf", "hello"), "is no GGUF file");
  expect(folder.write("pointer.gguf", std::string(kLfsPointer)), "Git LFS pointer");
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  expect(folder.path() / "pipe", "not a regular file");
}

// Root may read all: it becomes somebody else for a moment.
TEST(Load, SaysThatPermissionIsMissing) {
  const test::TemporaryFolder folder;
  folder.write("model/config.json", kConfig);
  folder.write("model/model.safetensors", tiny_weights());
  const std::filesystem::path model = folder.path() / "model";
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(model, std::filesystem::perms::none);
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(kNobody) != 0) GTEST_SKIP() << "root cannot become another user here";
  const auto loaded = load_model(model);
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  std::filesystem::permissions(model, std::filesystem::perms::owner_all);
  ASSERT_FALSE(loaded.has_value());
  EXPECT_NE(loaded.error().text.find("config.json: cannot be opened: Permission denied"), std::string::npos)
      << loaded.error().text;
}

TEST(Load, SaysWhatIsWrongWithAFolder) {
  const auto expect = [](const std::vector<std::pair<std::string, std::string>>& files, const std::string& words) {
    const test::TemporaryFolder folder;
    for (const auto& [name, contents] : files) folder.write(name, contents);
    const auto model = load_model(folder.path());
    ASSERT_FALSE(model.has_value()) << words;
    EXPECT_NE(model.error().text.find(words), std::string::npos) << model.error().text;
    EXPECT_LT(model.error().text.size(), 500u);
  };
  const auto config_with = [](const std::string& from, const std::string& to) {
    std::string text = kConfig;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string weights = tiny_weights();
  const std::string pointer(kLfsPointer);
  expect({}, "has no config.json");
  expect({{"m.gguf", "x"}}, "m.gguf");
  expect({{"config.json", kConfig}}, "has no safetensors file");
  expect({{"config.json", kConfig}, {"pytorch_model.bin", "x"}}, "convert the model to safetensors");
  expect({{"config.json", kConfig}, {"a.safetensors", weights}, {"b.safetensors", weights}},
         "model.safetensors is missing, and there is no model.safetensors.index.json that says in which files the "
         "weights are; the folder has a.safetensors, b.safetensors");
  expect({{"config.json", kConfig}, {"golden.safetensors", weights}}, "model.safetensors is missing");
  expect({{"config.json", "[]"}, {"model.safetensors", weights}}, "expected an object");
  expect({{"config.json", pointer}, {"model.safetensors", weights}}, "config.json: is a Git LFS pointer");
  expect({{"config.json", kConfig}, {"model.safetensors", pointer}}, "model.safetensors: is a Git LFS pointer");
  expect({{"config.json", kConfig}, {"model.safetensors", weights}, {"tokenizer.json", pointer}},
         "tokenizer.json: is a Git LFS pointer");
  expect({{"config.json", kConfig}, {"model.safetensors", weights.substr(0, weights.size() - 1)}}, "truncated");
  expect({{"config.json", kConfig}, {"model.safetensors", weights}, {"tokenizer_config.json", "{"}},
         "tokenizer_config");
  expect({{"config.json", kConfig}, {"model.safetensors", weights}, {"generation_config.json", R"({"top_k": "x"})"}},
         "top_k: is a string");
  const std::pair<std::string, std::string> good{"model.safetensors", weights};
  expect({{"config.json", config_with("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2")}, good},
         "num_hidden_layers: is 2, but");
  expect({{"config.json", config_with("\"num_hidden_layers\": 1", "\"num_hidden_layers\": -1")}, good},
         "expected 1 to");
  expect({{"config.json", config_with("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1000000000000")}, good},
         "expected 1 to");
  expect({{"config.json", config_with("\"vocab_size\": 3", "\"vocab_size\": 4")}, good}, "vocab_size: makes 4");
  expect({{"config.json", config_with("\"hidden_size\": 2", "\"hidden_size\": 4")}, good}, "hidden_size: makes 4");
  expect({{"config.json", config_with("\"num_attention_heads\": 1", "\"num_attention_heads\": 3")}, good},
         "no divisor");
  // Heads that would overflow what the rows of qkv_proj are counted in.
  const std::string norm = test::safetensors_file(
      fmt::format("{{{}}}", test::safetensors_entry("model.layers.0.input_layernorm.weight", "F32", "[2]", 0, 8)),
      std::string(8, '\0'));
  expect({{"config.json",
           config_with("\"num_attention_heads\": 1", "\"num_attention_heads\": 2147483648, \"head_dim\": 2147483648")},
          {"model.safetensors", norm}},
         "head_dim");
  expect(
      {{"config.json", config_with("\"vocab_size\": 3", "\"quantization_config\": {\"quant_method\": \"hqq\"}")}, good},
      "hqq is not supported");
}

TEST(Load, TakesAnotherConfiguration) {
  const test::TemporaryFolder folder;
  folder.write("model.safetensors", tiny_weights());
  const auto config = folder.write("other/config.json", kConfig);
  EXPECT_FALSE(load_model(folder.path()).has_value());
  const auto model = load_model(folder.path(), {.config = config});
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(model->config.source(), config);
  EXPECT_FALSE(load_model(folder.path(), {.config = folder.path() / "absent.json"}).has_value());
}

}  // namespace
}  // namespace bolide
