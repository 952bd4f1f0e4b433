#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "formats/quantised_checkpoint.h"
#include "formats/safetensors.h"
#include "formats/test_files.h"
#include "formats/tokenizer_json.h"
#include "synth/random_fill.h"
#include "synth/synth_tokenizer.h"
#include "synth/write_folder.h"

namespace bolide {
namespace {

SynthRequest request_of(const std::string& name) {
  const auto request = parse_synth_name(name);
  if (!request) {
    ADD_FAILURE() << request.error().text;
    std::abort();
  }
  return *request;
}

std::shared_ptr<const SynthWeights> weights_of(const SynthRequest& request) {
  auto weights = SynthWeights::create(request);
  if (!weights) {
    ADD_FAILURE() << weights.error().text;
    std::abort();
  }
  return *std::move(weights);
}

std::string bytes_of(const WeightSource& source, const std::string& name, int threads = 1) {
  Workers workers(threads);
  const auto data = threads == 1 ? source.open(name) : source.open_with(name, workers);
  EXPECT_TRUE(data.has_value()) << data.error().text;
  return data.has_value() ? std::string(as_text(data->bytes)) : "";
}

// As the model cards and the published index files have them.
TEST(Synth, ParameterCountsAreThoseOfThePublishedModels) {
  const std::pair<const char*, int64_t> published[] = {
      {"llama-3-8b", 8'030'261'248}, {"llama-3-70b", 70'553'706'496}, {"qwen2-1.5b", 1'543'714'304},
      {"qwen2-7b", 7'615'616'512},   {"phi-3-mini", 3'821'079'552},   {"mixtral-8x7b", 46'702'792'704},
      {"smollm2-135m", 134'515'008}, {"smollm2-360m", 361'821'120},   {"smollm2-1.7b", 1'711'376'384},
      {"long-1b", 1'235'814'400},
  };
  EXPECT_EQ(std::size(published), architectures().size());
  for (const auto& [name, parameters] : published)
    for (const SynthType& type : synth_types()) {
      const auto architecture = find_architecture(name);
      ASSERT_TRUE(architecture.has_value());
      const auto weights = weights_of({*architecture, &type});
      EXPECT_EQ(weights->parameters(), parameters) << name << " " << type.name;
      const uint64_t size = type.name == "bf16" ? 2 : type.name == "f32" ? 4 : 0;
      if (size > 0) {
        EXPECT_EQ(weights->byte_size(), static_cast<uint64_t>(parameters) * size) << name;
      }
    }
}

TEST(Synth, SameBytesInAnyOrderOnAnyThreads) {
  for (const SynthType& type : synth_types()) {
    SynthRequest request = request_of("synth:smollm2-135m:layers=1:seed=3");
    request.type = &type;
    const auto a = weights_of(request), b = weights_of(request);
    std::vector<std::string> names = a->names(), shuffled = names;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(std::random_device{}()));
    std::map<std::string, size_t> hashes;
    for (const std::string& name : shuffled) hashes[name] = std::hash<std::string>()(bytes_of(*b, name, 3));
    for (const std::string& name : names)
      EXPECT_EQ(std::hash<std::string>()(bytes_of(*a, name)), hashes[name]) << name << " " << type.name;
    request.seed = 4;
    const std::string norm = "model.layers.0.input_layernorm.weight";
    EXPECT_NE(bytes_of(*weights_of(request), norm), bytes_of(*a, norm));
  }
}

// Any part of a stream is what the whole has there, and the values are those that these bits have always given.
TEST(Synth, PartsOfAStreamAreThoseOfTheWhole) {
  std::array<uint16_t, kQuantiles> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint16_t>(i);
  std::vector<uint16_t> whole(1003);
  fill_from_table(7, 0, std::span<uint16_t>(whole), table.data());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], random_word(7, i / 4) >> (16 * (i % 4)) & 0xfff) << i;
  for (const size_t begin : {size_t{4}, size_t{400}, size_t{996}, size_t{1000}}) {
    std::vector<uint16_t> part(std::min<size_t>(101, whole.size() - begin));
    fill_from_table(7, begin, std::span<uint16_t>(part), table.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(begin)));
  }
  EXPECT_EQ(random_word(0, 0), 0xe220a8397b1dcdafu);  // the first number of SplitMix64 with state 0
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments_of(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += v / static_cast<double>(values.size());
  for (const float v : values) {
    EXPECT_TRUE(std::isfinite(v));
    m.deviation += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
    m.largest = std::max(m.largest, std::abs(static_cast<double>(v)));
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// What a reader makes of every type has the scale that was meant.
TEST(Synth, DecodedWeightsHaveTheirScaleInEveryType) {
  for (const SynthType& type : synth_types()) {
    SynthRequest request = request_of("synth:qwen2-1.5b:layers=1");
    request.type = &type;
    const auto config = ModelConfig::parse(synth_config(request), "config.json");
    ASSERT_TRUE(config.has_value()) << config.error().text;
    const auto source = read_quantised(weights_of(request), *config);
    ASSERT_TRUE(source.has_value()) << source.error().text;
    const auto check = [&](const std::string& name, double mean, double deviation) {
      const auto values = read_floats(**source, name);
      ASSERT_TRUE(values.has_value()) << values.error().text;
      const Moments m = moments_of(*values);
      EXPECT_NEAR(m.mean, mean, 0.15 * deviation) << name << " " << type.name;
      EXPECT_NEAR(m.deviation, deviation, 0.1 * deviation) << name << " " << type.name;
      EXPECT_LT(m.largest, std::abs(mean) + 6 * deviation) << name << " " << type.name;
    };
    check("model.layers.0.self_attn.k_proj.weight", 0, 1 / std::sqrt(1536.));
    check("model.layers.0.mlp.down_proj.weight", 0, 1 / std::sqrt(8960.));
    check("model.layers.0.self_attn.q_proj.bias", 0, 0.02);
    check("model.norm.weight", 1, 0.1);
    EXPECT_EQ((*source)->find("model.layers.0.mlp.down_proj.weight")->shape, (Shape{1536, 8960}));
    EXPECT_FALSE((*source)->has("lm_head.weight"));  // tied
  }
}

// The codes and scales that kernels of 8 and 4 bits read: the sizes of Llama-3-8B are 4 billion bytes a token in w4.
TEST(Synth, Int8AndW4AreWhatKernelsRead) {
  constexpr uint64_t kVocab = 128256, kEmbed = 4096, kLayers = 32, kGains = (2 * kLayers + 1) * kEmbed * 2;
  constexpr uint64_t kRows = kLayers * (2 * 4096 + 2 * 1024 + 2 * 14336), kOfDown = kLayers * 4096;
  constexpr uint64_t kElements = kRows * kEmbed + kOfDown * 14336;
  const auto int8 = weights_of(request_of("synth:llama-3-8b:int8")), w4 = weights_of(request_of("synth:llama-3-8b:w4"));
  constexpr uint64_t kHead = kVocab * kEmbed + kVocab * 4, kTable = kVocab * kEmbed * 2;
  EXPECT_EQ(int8->byte_size(), kElements + (kRows + kOfDown) * 4 + kHead + kTable + kGains);
  EXPECT_EQ(w4->byte_size(), kElements / 128 * 68 + kHead + kTable + kGains);
  for (const auto& weights : {int8, w4}) {
    EXPECT_EQ(weights->find("model.embed_tokens.weight")->dtype, DType::kBF16);
    for (const std::string& name : weights->names()) {
      const WeightInfo& info = *weights->find(name);
      if (info.dtype != DType::kI8) continue;
      const WeightInfo* scale = weights->find(info.scale);
      ASSERT_NE(scale, nullptr) << name;
      EXPECT_EQ(scale->dtype, DType::kF32);
      EXPECT_EQ(scale->shape, Shape{info.shape[0]});
    }
    EXPECT_EQ(weights->find("lm_head.weight")->dtype, DType::kI8);
  }
  EXPECT_EQ(int8->find("model.layers.31.mlp.up_proj.weight")->dtype, DType::kI8);
  EXPECT_EQ(w4->find("model.layers.31.mlp.up_proj.weight")->quant, &kW4_G128);
  // Experts have no scales of rows.
  const auto experts = weights_of(request_of("synth:mixtral-8x7b:int8:layers=1"));
  EXPECT_EQ(experts->find("model.layers.0.block_sparse_moe.experts.7.w2.weight")->quant, &kQ8_0);
  EXPECT_EQ(experts->find("model.layers.0.self_attn.o_proj.weight")->dtype, DType::kI8);
}

// Rows of 576 are no whole number of groups of 128.
TEST(Synth, GroupsOfW4FitTheRows) {
  EXPECT_EQ(scheme_for_rows(&kW4_G128, 96), &kW4_G32);
  const auto weights = weights_of(request_of("synth:smollm2-135m:w4:layers=1"));
  const std::pair<const char*, const QuantScheme*> wanted[] = {{"model.layers.0.self_attn.q_proj.weight", &kW4_G64},
                                                               {"model.layers.0.mlp.down_proj.weight", &kW4_G128}};
  for (const auto& [name, scheme] : wanted) {
    EXPECT_EQ(weights->find(name)->quant, scheme) << name;
    const std::string bytes = bytes_of(*weights, name);
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(scheme->block_bytes)) {
      ASSERT_EQ(bytes[at + 2], 8) << name << " at " << at;
      ASSERT_EQ(bytes[at + 3], 0) << name << " at " << at;
    }
  }
}

TEST(Synth, Int8HeadHasItsScale) {
  const auto weights = weights_of(request_of("synth:phi-3-mini:w4:layers=1"));
  const auto codes = weights->open("lm_head.weight");
  ASSERT_TRUE(codes.has_value());
  const auto scales = read_floats(*weights, codes->info.scale);
  ASSERT_TRUE(scales.has_value());
  const int64_t k = codes->info.shape[1];
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 20; ++i) {
    const int64_t n = std::uniform_int_distribution<int64_t>(0, codes->info.shape[0] - 1)(random);
    std::vector<float> values;
    for (int64_t j = 0; j < k; ++j)
      values.push_back(scales->at(static_cast<size_t>(n)) * static_cast<float>(static_cast<int8_t>(codes->row(n)[j])));
    // Scales of rows are 10 % apart.
    EXPECT_NEAR(moments_of(values).deviation, 1 / std::sqrt(3072.), 0.5 / std::sqrt(3072.)) << n;
  }
}

TEST(Synth, WrittenFolderEqualsTheSource) {
  for (const char* name :
       {"synth:smollm2-135m:layers=1", "synth:smollm2-135m:fp8:layers=2:seed=5",
        "synth:smollm2-135m:gptq:layers=1:seed=18446744073709551615", "synth:smollm2-135m:w4:layers=1"}) {
    const test::TemporaryFolder temporary;
    const SynthRequest request = request_of(name);
    SynthRequest stored = request;
    if (request.type->name == "w4") stored.type = *find_synth_type("gptq");
    const auto want = weights_of(stored);
    for (const uint64_t shard_bytes : {kShardBytesMax, uint64_t{3'000'000}}) {
      const auto folder = temporary.path() / std::to_string(shard_bytes);
      uint64_t last = 0;
      const auto show = [&](uint64_t done, uint64_t total) {
        EXPECT_GE(done, last);
        EXPECT_EQ(total, want->byte_size());
        last = done;
      };
      const SynthProgress progress(show);
      const auto written = write_synth_folder(request, folder, 2, &progress, shard_bytes);
      ASSERT_TRUE(written.has_value()) << written.error().text;
      const bool several = shard_bytes != kShardBytesMax;
      EXPECT_EQ(written->files > 1, several);
      const auto got = several ? SafetensorsSource::open_index(folder / "model.safetensors.index.json")
                               : SafetensorsSource::open_file(folder / "model.safetensors");
      ASSERT_TRUE(got.has_value()) << got.error().text;
      EXPECT_EQ((*got)->names(), want->names());
      for (const std::string& tensor : want->names()) {
        EXPECT_EQ((*got)->find(tensor)->dtype, want->find(tensor)->dtype);
        EXPECT_EQ((*got)->find(tensor)->shape, want->find(tensor)->shape);
        EXPECT_TRUE(bytes_of(**got, tensor) == bytes_of(*want, tensor)) << tensor;
      }
      EXPECT_EQ(read_file(folder / "config.json").value_or(""), synth_config(stored));
      EXPECT_EQ(read_file(folder / "tokenizer.json").value_or(""), synth_tokenizer(49152));
    }
  }
}

TEST(Synth, RefusesFoldersThatAreInUseAndTypesThatFoldersLack) {
  const test::TemporaryFolder temporary;
  temporary.write("used/a.txt", "mine");
  temporary.write("file", "mine");
  const SynthRequest request = request_of("synth:smollm2-135m:layers=1");
  for (const char* name : {"used", "file", "missing/folder"}) {
    const auto done = write_synth_folder(request, temporary.path() / name, 1);
    ASSERT_FALSE(done.has_value()) << name;
    EXPECT_NE(done.error().text.find(name), std::string::npos) << done.error().text;
  }
  EXPECT_EQ(read_file(temporary.path() / "used/a.txt").value_or(""), "mine");
  for (const char* name : {"synth:smollm2-135m:q4_0", "synth:smollm2-135m:int8"}) {
    const auto done = write_synth_folder(request_of(name), temporary.path() / "new", 1);
    ASSERT_FALSE(done.has_value()) << name;
    EXPECT_NE(done.error().text.find(name), std::string::npos) << done.error().text;
    EXPECT_FALSE(std::filesystem::exists(temporary.path() / "new"));
  }
}

TEST(Synth, NamesAreReadBackAndWrongOnesAnswered) {
  for (const char* name : {"synth:llama-3-8b:bf16", "synth:qwen2-7b:fp8:layers=3", "synth:long-1b:q6_k:seed=9",
                           "synth:mixtral-8x7b:w4:layers=1:seed=18446744073709551615"})
    EXPECT_EQ(to_string(request_of(name)), name);
  EXPECT_EQ(request_of("synth:llama-3-8b").type->name, "bf16");
  const std::pair<const char*, const char*> wrong[] = {
      {"synth:", "known are llama-3-8b"},
      {"synth:llama-3-80b", "did you mean"},
      {"synth:long-1b:int3", "w4"},
      {"synth:long-1b:layers=0", "at least 1"},
      {"synth:long-1b:layers=17", "has 16"},
      {"synth:long-1b:layers=x", "whole number"},
      {"synth:long-1b:seed=-1", "whole number"},
      {"synth:long-1b:layers=99999999999999999999", "whole number"},
      {"synth:long-1b::bf16", "no type"},
      {"synth:long-1b:bf16:q4_0", "twice"},
      {"synth:long-1b:layers=1:layers=2", "twice"},
      {"synth:long-1b:seed=1:seed=1", "twice"},
  };
  for (const auto& [name, part] : wrong) {
    const auto request = parse_synth_name(name);
    ASSERT_FALSE(request.has_value()) << name;
    EXPECT_NE(request.error().text.find(part), std::string::npos) << request.error().text;
  }
}

TEST(Synth, TokenizerHasATextForEveryId) {
  for (const int64_t vocab : {256, 257, 32064, 152064, 400000}) {
    const auto spec = parse_tokenizer_json(synth_tokenizer(vocab));
    ASSERT_TRUE(spec.has_value()) << spec.error().text;
    ASSERT_EQ(static_cast<int64_t>(spec->vocab.size()), vocab);  // texts are keys: none is there twice
    for (int64_t i = 0; i < vocab; ++i) ASSERT_EQ(spec->vocab[static_cast<size_t>(i)].id, i);
  }
}

}  // namespace
}  // namespace bolide
