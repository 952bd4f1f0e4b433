// GGUF files made by hand: names, layout and configuration must come out as Hugging Face's.
#include <gtest/gtest.h>

#include <random>

#include "formats/gguf.h"
#include "formats/test_files.h"
#include "load/gguf_names.h"
#include "load/load.h"
#include "models/families.h"

namespace bolide {
namespace {

using test::GgufBuilder;
using test::raw;

struct Dims {
  int64_t hidden = 8, heads = 2, kv_heads = 1, head_dim = 4, ffn = 6, vocabulary = 5;
};

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

GgufBuilder metadata(const std::string& architecture, const Dims& d = {}) {
  GgufBuilder file;
  const std::string prefix = architecture + ".";
  file.text("general.architecture", architecture).text("general.name", "Tiny");
  file.u32(prefix + "block_count", 1).u32(prefix + "context_length", 64);
  file.u32(prefix + "embedding_length", static_cast<uint32_t>(d.hidden));
  file.u32(prefix + "feed_forward_length", static_cast<uint32_t>(d.ffn));
  file.u32(prefix + "attention.head_count", static_cast<uint32_t>(d.heads));
  file.u32(prefix + "attention.head_count_kv", static_cast<uint32_t>(d.kv_heads));
  file.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f).f32(prefix + "rope.freq_base", 5000.0f);
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "llama-bpe");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "<|eot_id|>", "d", "e"});
  std::string types = raw<uint32_t>(5) + raw<uint64_t>(5);
  for (const int32_t type : {1, 1, 3, 1, 1}) types += raw(type);
  file.entry("tokenizer.ggml.token_type", 9, types);
  file.u32("tokenizer.ggml.eos_token_id", 1).u32("tokenizer.ggml.bos_token_id", 0);
  file.text("tokenizer.chat_template", "{{ messages }}");
  return file;
}

void add_common(GgufBuilder& file, const Dims& d = {}) {
  file.floats("token_embd.weight", {d.hidden, d.vocabulary}, random_floats(d.hidden * d.vocabulary, 1));
  file.floats("output_norm.weight", {d.hidden}, random_floats(d.hidden, 2));
  file.floats("blk.0.attn_norm.weight", {d.hidden}, random_floats(d.hidden, 3));
  file.floats("blk.0.ffn_norm.weight", {d.hidden}, random_floats(d.hidden, 4));
  const int64_t q = d.heads * d.head_dim;
  file.floats("blk.0.attn_output.weight", {q, d.hidden}, random_floats(q * d.hidden, 5));
}

void add_attention(GgufBuilder& file, const Dims& d = {}) {
  const int64_t q = d.heads * d.head_dim;
  const int64_t kv = d.kv_heads * d.head_dim;
  file.floats("blk.0.attn_q.weight", {d.hidden, q}, random_floats(q * d.hidden, 6));
  file.floats("blk.0.attn_k.weight", {d.hidden, kv}, random_floats(kv * d.hidden, 7));
  file.floats("blk.0.attn_v.weight", {d.hidden, kv}, random_floats(kv * d.hidden, 8));
}

void add_ffn(GgufBuilder& file, const Dims& d = {}) {
  file.floats("blk.0.ffn_gate.weight", {d.hidden, d.ffn}, random_floats(d.ffn * d.hidden, 9));
  file.floats("blk.0.ffn_up.weight", {d.hidden, d.ffn}, random_floats(d.ffn * d.hidden, 10));
  file.floats("blk.0.ffn_down.weight", {d.ffn, d.hidden}, random_floats(d.ffn * d.hidden, 11));
}

GgufBuilder tiny_llama() {
  GgufBuilder file = metadata("llama");
  add_common(file);
  add_attention(file);
  add_ffn(file);
  return file;
}

Result<LoadedModel> load(const GgufBuilder& file) {
  static const test::TemporaryFolder folder;
  return load_model(folder.write("model.gguf", file.build()));
}

std::string problem_of(const GgufBuilder& file) {
  const auto model = load(file);
  return model ? "" : model.error().text;
}

// Row r of Hugging Face's matrix is this row of llama's GGUF: within a head, (s, i) against (i, s).
int64_t gguf_row(int64_t r, int64_t head_dim) {
  const int64_t in_head = r % head_dim;
  return r - in_head + in_head % (head_dim / 2) * 2 + in_head / (head_dim / 2);
}

std::vector<float> rows_put_apart(const std::vector<float>& values, int64_t rows, int64_t columns, int64_t head_dim) {
  std::vector<float> out;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out.push_back(values[static_cast<size_t>(gguf_row(r, head_dim) * columns + c)]);
  return out;
}

TEST(LoadGguf, GivesHuggingFaceNamesAndFields) {
  const auto model = load(tiny_llama());
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(model->format, "gguf");
  EXPECT_EQ(model->name, "Tiny");
  EXPECT_EQ(*model->config.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(*model->config.integer("head_dim"), 4);
  EXPECT_EQ(*model->config.integer("vocab_size"), 5);
  EXPECT_EQ(*model->config.boolean("tie_word_embeddings"), true);
  EXPECT_EQ(model->config.rope()->theta, 5000.0);
  EXPECT_EQ(model->generation.eos_ids, (std::vector<int64_t>{1, 2}));  // eos and the control token <|eot_id|>
  EXPECT_EQ(model->generation.bos_id, 0);
  EXPECT_EQ(model->chat_template, "{{ messages }}");
  ASSERT_TRUE(model->tokenizer.gguf.has_value());
  EXPECT_EQ(model->tokenizer.gguf->tokens[3], "d");
  EXPECT_EQ(model->tokenizer.gguf->pre, "llama-bpe");
  const WeightSource& weights = *model->weights;
  EXPECT_EQ(weights.names().size(), 11u);
  EXPECT_EQ(read_floats(weights, "model.layers.0.self_attn.v_proj.weight").value(), random_floats(32, 8));
  EXPECT_EQ(read_floats(weights, "model.layers.0.mlp.down_proj.weight").value(), random_floats(48, 11));
  EXPECT_TRUE(weights.open("model.layers.0.mlp.down_proj.weight")->mapped);
  EXPECT_FALSE(weights.has("blk.0.ffn_down.weight"));
}

TEST(LoadGguf, PutsLlamasRotatedRowsApart) {
  GgufBuilder file = tiny_llama();
  file.floats("blk.0.attn_q.bias", {8}, random_floats(8, 12));
  const auto model = load(file);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  const WeightSource& weights = *model->weights;
  EXPECT_EQ(read_floats(weights, "model.layers.0.self_attn.q_proj.weight").value(),
            rows_put_apart(random_floats(64, 6), 8, 8, 4));
  EXPECT_EQ(read_floats(weights, "model.layers.0.self_attn.k_proj.weight").value(),
            rows_put_apart(random_floats(32, 7), 4, 8, 4));
  EXPECT_EQ(read_floats(weights, "model.layers.0.self_attn.q_proj.bias").value(),
            rows_put_apart(random_floats(8, 12), 8, 1, 4));
  EXPECT_EQ(*model->config.boolean("attention_bias"), true);
}

TEST(LoadGguf, LeavesOtherArchitecturesRowsAlone) {
  GgufBuilder file = metadata("qwen2");
  add_common(file);
  add_attention(file);
  add_ffn(file);
  const auto model = load(file);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(*model->config.architecture(), "Qwen2ForCausalLM");
  EXPECT_EQ(read_floats(*model->weights, "model.layers.0.self_attn.q_proj.weight").value(), random_floats(64, 6));
}

// Rows of quantised blocks move whole.
TEST(LoadGguf, PutsQuantisedRowsApart) {
  const Dims d{.hidden = 32, .heads = 2, .kv_heads = 1, .head_dim = 16};
  GgufBuilder file = metadata("llama", d);
  add_common(file, d);
  add_ffn(file, d);
  std::mt19937 random(5);
  std::string blocks(32 * 18, '\0');
  for (char& c : blocks) c = static_cast<char>(random());
  file.tensor("blk.0.attn_q.weight", {32, 32}, 2, blocks);
  file.tensor("blk.0.attn_k.weight", {32, 16}, 2, blocks.substr(0, 16 * 18));
  const auto model = load(file);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  const auto data = model->weights->open("model.layers.0.self_attn.q_proj.weight");
  ASSERT_TRUE(data.has_value());
  for (int64_t r = 0; r < 32; ++r)
    EXPECT_EQ(as_text({data->row(r), 18}), blocks.substr(static_cast<size_t>(gguf_row(r, 16)) * 18, 18)) << r;
}

TEST(LoadGguf, ShowsMergedExpertsOneByOne) {
  GgufBuilder file = metadata("llama");
  file.u32("llama.expert_count", 3).u32("llama.expert_used_count", 2);
  add_common(file);
  add_attention(file);
  file.floats("blk.0.ffn_gate_inp.weight", {8, 3}, random_floats(24, 20));
  file.floats("blk.0.ffn_gate_exps.weight", {8, 6, 3}, random_floats(144, 21));
  file.floats("blk.0.ffn_down_exps.weight", {6, 8, 3}, random_floats(144, 22));
  file.floats("blk.0.ffn_up_exps.weight", {8, 6, 3}, random_floats(144, 23));
  const auto model = load(file);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(*model->config.architecture(), "MixtralForCausalLM");
  EXPECT_EQ(*model->config.integer("num_local_experts"), 3);
  EXPECT_EQ(*model->config.integer("num_experts_per_tok"), 2);
  EXPECT_TRUE(model->weights->has("model.layers.0.block_sparse_moe.gate.weight"));
  const std::pair<const char*, uint32_t> parts[] = {{"w1", 21}, {"w2", 22}, {"w3", 23}};
  for (const auto& [part, seed] : parts)
    for (int64_t expert = 0; expert < 3; ++expert) {
      const auto all = random_floats(144, seed);
      const auto name = fmt::format("model.layers.0.block_sparse_moe.experts.{}.{}.weight", expert, part);
      EXPECT_EQ(read_floats(*model->weights, name).value(),
                std::vector<float>(all.begin() + expert * 48, all.begin() + (expert + 1) * 48));
      EXPECT_EQ(model->weights->find(name)->shape, std::string_view(part) == "w2" ? (Shape{8, 6}) : (Shape{6, 8}));
    }
  EXPECT_EQ(hf_name("blk.7.ffn_gate.5.weight", **find_family(model->config)),
            "model.layers.7.block_sparse_moe.experts.5.w1.weight");
}

TEST(LoadGguf, KeepsPhi3sFusedTensors) {
  GgufBuilder file = metadata("phi3");
  add_common(file);
  file.floats("blk.0.attn_qkv.weight", {8, 16}, random_floats(128, 30));
  file.floats("blk.0.ffn_up.weight", {8, 12}, random_floats(96, 31));
  file.floats("blk.0.ffn_down.weight", {6, 8}, random_floats(48, 32));
  file.floats("rope_factors_short.weight", {2}, {1.0f, 1.25f}).floats("rope_factors_long.weight", {2}, {2.0f, 3.5f});
  file.f32("phi3.rope.scaling.attn_factor", 1.5f).u32("phi3.rope.scaling.original_context_length", 16);
  file.u32("phi3.attention.sliding_window", 47);
  const auto model = load(file);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  EXPECT_EQ(read_floats(*model->weights, "model.layers.0.self_attn.qkv_proj.weight").value(), random_floats(128, 30));
  EXPECT_EQ(read_floats(*model->weights, "model.layers.0.mlp.gate_up_proj.weight").value(), random_floats(96, 31));
  EXPECT_EQ(*model->config.integer("sliding_window"), 47);
  const auto rope = model->config.rope();
  ASSERT_TRUE(rope.has_value()) << rope.error().text;
  EXPECT_EQ(rope->type, RopeType::kLongRope);
  EXPECT_EQ(rope->short_factor, (std::vector<double>{1, 1.25}));
  EXPECT_EQ(rope->long_factor, (std::vector<double>{2, 3.5}));
  EXPECT_EQ(rope->attention_factor, 1.5);
  EXPECT_EQ(rope->original_context, 16);
}

TEST(LoadGguf, ReadsRopeScaling) {
  GgufBuilder linear = tiny_llama();
  linear.text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(load(linear)->config.rope()->type, RopeType::kLinear);
  GgufBuilder old = tiny_llama();
  old.f32("llama.rope.scale_linear", 2);
  EXPECT_EQ(load(old)->config.rope()->factor, 2.0);
  GgufBuilder yarn = tiny_llama();
  yarn.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
  yarn.u32("llama.rope.scaling.original_context_length", 16);
  EXPECT_EQ(load(yarn)->config.rope()->type, RopeType::kYarn);
  EXPECT_EQ(load(yarn)->config.rope()->original_context, 16);
  GgufBuilder partial = tiny_llama();
  partial.u32("llama.rope.dimension_count", 2);
  EXPECT_EQ(load(partial)->config.rope()->partial_rotary_factor, 0.5);
  GgufBuilder llama3 = tiny_llama();
  llama3.floats("rope_freqs.weight", {2}, {1.0f, 8.0f});
  EXPECT_EQ(load(llama3)->config.rope()->long_factor, (std::vector<double>{1, 8}));
  EXPECT_EQ(load(llama3)->config.rope()->attention_factor, 1.0);
}

TEST(LoadGguf, RefusesWhatDoesNotFit) {
  const auto expect = [](const GgufBuilder& file, const std::string& words) {
    const std::string problem = problem_of(file);
    EXPECT_NE(problem.find(words), std::string::npos) << "got \"" << problem << "\", expected \"" << words << "\"";
    EXPECT_NE(problem.find("model.gguf"), std::string::npos);
  };
  const auto with_entry = [](size_t index, const std::string& key, uint32_t value) {
    GgufBuilder file = tiny_llama();
    file.entries[index] = GgufBuilder().u32(key, value).entries[0];
    return file;
  };
  expect(with_entry(2, "llama.block_count", 3), "num_hidden_layers: is 3, but");
  expect(with_entry(2, "llama.block_count", 4'000'000'000), "llama.block_count: expected an integer from 1");
  expect(with_entry(2, "llama.other", 1), "llama.block_count is missing");
  expect(with_entry(4, "llama.embedding_length", 16), "hidden_size");
  expect(with_entry(6, "llama.attention.head_count", 4), "num_key_value_heads * head_dim: makes 2");
  expect(with_entry(6, "llama.attention.head_count", 0), "expected an integer from 1");
  expect(with_entry(7, "llama.attention.head_count_kv", 2), "num_key_value_heads");
  expect(with_entry(5, "llama.feed_forward_length", 7), "intermediate_size");
  GgufBuilder more_tokens = tiny_llama();
  more_tokens.entries[12] = GgufBuilder().texts("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f"}).entries[0];
  more_tokens.entries.erase(more_tokens.entries.begin() + 13);
  expect(more_tokens, "has 6 tokens, the embedding only 5 rows");
  GgufBuilder unknown = tiny_llama();
  unknown.entries[0] = GgufBuilder().text("general.architecture", "mamba").entries[0];
  expect(unknown, "mamba is not supported; known are llama");
  GgufBuilder experts = tiny_llama();
  experts.u32("llama.expert_count", 3).u32("llama.expert_used_count", 1);
  experts.floats("blk.0.ffn_gate_exps.weight", {4, 2}, random_floats(8, 1));
  expect(experts, "3 experts outermost");
  GgufBuilder bad_rope = tiny_llama();
  bad_rope.text("llama.rope.scaling.type", "wavy").f32("llama.rope.scaling.factor", 2);
  EXPECT_NE(load(bad_rope)->config.rope().error().text.find("wavy is not supported"), std::string::npos);
}

}  // namespace
}  // namespace bolide
