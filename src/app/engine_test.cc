#include "app/engine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>

#include "app/test_models.h"
#include "base/log.h"
#include "formats/engine_file.h"
#include "formats/test_files.h"

namespace bolide {
namespace {

using namespace test;

std::filesystem::path build(const TemporaryFolder& folder, const std::string& name, ModelOptions options = {}) {
  options.threads = 1;
  const auto path = folder.path() / (name + ".engine");
  const auto report = build_engine(golden_model(name), path, options);
  EXPECT_TRUE(report.has_value()) << report.error().text;
  if (report) {
    EXPECT_EQ(report->bytes, std::filesystem::file_size(path));
  }
  return path;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

ModelOptions plain_options() {
  ModelOptions options;
  options.threads = 1;
  options.context = 64;
  options.tokens_per_step = 64;
  return options;
}

const char* const kModels[] = {"llama-gguf-q4_0", "llama-gguf-mixed", "llama-bias", "qwen3",
                               "mixtral",         "phi3-longrope",    "llama-gptq", "llama-gptq-actorder",
                               "llama-awq",       "llama-fp8-channel"};

TEST(Engine, GivesTheBitsOfItsCheckpoint) {
  const TemporaryFolder folder;
  for (const char* name : kModels) {
    Model model = open(name, plain_options());
    const auto tokens = random_tokens(model, 33, 1);
    ModelOptions verify = plain_options();
    verify.verify = true;
    Model engine = open_path(build(folder, name), verify);
    EXPECT_EQ(engine.format, "engine");
    EXPECT_EQ(engine.repacked, 0) << name;
    EXPECT_EQ(engine.name, model.name);
    EXPECT_EQ(engine.stop_ids, model.stop_ids);
    EXPECT_EQ(engine.context_max, model.context_max);
    EXPECT_EQ(engine.chat_template, model.chat_template);
    EXPECT_EQ(engine.generation.temperature, model.generation.temperature);
    EXPECT_EQ(*engine.tokenizer.encode("Hello <|user|> wörld 12\n"),
              *model.tokenizer.encode("Hello <|user|> wörld 12\n"));
    const auto want = logits_of(model, tokens);
    EXPECT_TRUE(same_bits(logits_of(engine, tokens), want)) << name;
    EXPECT_TRUE(same_bits(logits_of(engine, tokens, {5}), logits_of(model, tokens, {5}))) << name;
  }
}

TEST(Engine, AnotherArithmeticAsAskedFor) {
  const TemporaryFolder folder;
  for (const char* name : {"llama-gguf-q4_0", "llama-bias", "mixtral", "llama-fp8-channel"}) {
    const auto path = build(folder, name);
    for (const ComputeMode mode : {ComputeMode::kF32, ComputeMode::kBF16}) {
      ModelOptions options = plain_options();
      options.dtype = mode;
      Model model = open(name, options), engine = open_path(path, options);
      const auto tokens = random_tokens(model, 20, 2);
      EXPECT_TRUE(same_bits(logits_of(engine, tokens), logits_of(model, tokens))) << name;
    }
  }
  // Inputs left alone, as `eval golden` asks for the weights by themselves.
  ModelOptions options = plain_options();
  Model rounded = open("llama-fp8-channel", options);
  options.round_inputs = false;
  Model model = open("llama-fp8-channel", options),
        engine = open_path(folder.path() / "llama-fp8-channel.engine", options);
  const auto tokens = random_tokens(model, 20, 3);
  const auto want = logits_of(model, tokens);
  EXPECT_TRUE(same_bits(logits_of(engine, tokens), want));
  EXPECT_FALSE(same_bits(logits_of(rounded, tokens), want));
}

struct Warnings final : log::Sink {
  std::vector<std::string> lines;
  void write(const log::Record& record) override { lines.push_back(log::to_line(record, log::LineFormat::kKeyValue)); }
};

TEST(Engine, OnAnotherLevelItIsRepackedAndSaysSo) {
  const TemporaryFolder folder;
  const CpuInfo cpu = detect_cpu();
  for (const char* name : {"llama-gguf-mixed", "llama-bias", "mixtral", "llama-gptq", "llama-fp8-channel"}) {
    for (const Isa from : {Isa::kScalar, best_isa(cpu)}) {
      ModelOptions building;
      building.isa = from;
      const auto path = build(folder, name, building);
      for (const Isa to : {Isa::kScalar, Isa::kAvx2, best_isa(cpu)}) {
        if (!supports(cpu, to)) continue;
        ModelOptions options = plain_options();
        options.isa = to;
        Warnings warnings;
        log::set_sink(&warnings, log::Level::kWarning);
        Model engine = open_path(path, options);
        log::set_sink(nullptr, log::Level::kWarning);
        Model model = open(name, options);
        const auto tokens = random_tokens(model, 20, 4);
        EXPECT_TRUE(same_bits(logits_of(engine, tokens), logits_of(model, tokens)))
            << name << " from " << to_string(from) << " to " << to_string(to);
        EXPECT_EQ(warnings.lines.size(), engine.repacked > 0 ? 1u : 0u);
        if (!warnings.lines.empty()) {
          EXPECT_NE(warnings.lines[0].find("repacked"), std::string::npos);
        }
        if (from == to) {
          EXPECT_EQ(engine.repacked, 0);
        }
      }
    }
  }
}

std::string refusal(const std::filesystem::path& path, const ModelOptions& options = plain_options()) {
  const auto prepared = read_engine(path, options);
  return prepared ? "" : prepared.error().text;
}

TEST(Engine, TruncatedAnywhereItIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = contents(build(folder, "llama-gguf-q4_0"));
  ASSERT_GT(whole.size(), 50000u);
  for (size_t size = 0; size < whole.size(); size += 1000) {
    const auto path = folder.write("cut.engine", whole.substr(0, size));
    const std::string text = refusal(path);
    EXPECT_NE(text, "") << size;
    if (size > 8) {
      EXPECT_NE(text.find("bolide build"), std::string::npos) << text;
    }
    EXPECT_NE(text.find("cut.engine"), std::string::npos) << text;
  }
}

TEST(Engine, FlippedBytesAreFound) {
  const TemporaryFolder folder;
  const auto path = build(folder, "llama-gguf-q4_0");
  const std::string whole = contents(path);
  const auto file = EngineFile::open(path);
  ASSERT_TRUE(file.has_value());
  std::mt19937 random(5);
  ModelOptions verify = plain_options();
  verify.verify = true;
  ASSERT_EQ(refusal(path, verify), "");
  for (const EngineSection& section : file->sections()) {
    if (section.bytes == 0) continue;
    std::string bad = whole;
    const size_t at = section.offset + random() % section.bytes;
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    const auto flipped = folder.write("bad.engine", bad);
    const bool weight = section.name.starts_with("weight.");
    const std::string want = "checksum of section " + section.name;
    EXPECT_NE(refusal(flipped, verify).find(want), std::string::npos) << section.name;
    if (weight) {
      EXPECT_EQ(refusal(flipped), "") << section.name;
    } else {
      EXPECT_NE(refusal(flipped).find(want), std::string::npos) << section.name;
    }
  }
}

// The engine at `path` with one section replaced, checksums right.
std::filesystem::path with_section(const std::filesystem::path& path, const std::string& name,
                                   const std::string& text) {
  const auto file = EngineFile::open(path);
  EXPECT_TRUE(file.has_value());
  std::vector<EngineSectionData> sections;
  for (const EngineSection& section : file->sections())
    sections.push_back({section.name, section.name == name ? as_bytes(text) : *file->section(section.name, false)});
  auto changed = path;
  changed.replace_extension(".changed.engine");
  EXPECT_TRUE(write_engine_file(changed, sections).has_value());
  return changed;
}

TEST(Engine, SectionsWithRightChecksumsAreNotTrusted) {
  const TemporaryFolder folder;
  const auto path = build(folder, "llama-bias");
  const auto file = EngineFile::open(path);
  ASSERT_TRUE(file.has_value());
  const auto text_of = [&](const char* name) { return std::string(as_text(*file->section(name, true))); };
  const auto refuses = [&](const char* name, const std::string& text, const char* why) {
    const auto model = open_model(with_section(path, name, text), plain_options());
    ASSERT_FALSE(model.has_value()) << name << ": " << text.substr(0, 200);
    EXPECT_NE(model.error().text.find(why), std::string::npos) << name << ": " << model.error().text;
    EXPECT_NE(model.error().text.find(".changed.engine"), std::string::npos) << model.error().text;
  };
  const std::string graph = text_of("graph"), weights = text_of("weights");
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  refuses("graph", "", "");
  refuses("graph", "nonsense", "graph");
  refuses("graph", graph.substr(0, graph.size() / 2), "");
  refuses("graph", replaced(graph, "layer=0", "layer=77"), "layer");
  refuses("graph", replaced(graph, "layer=0", "layer=-1"), "layer");
  refuses("graph", replaced(graph, "input ids : i32[T]", "input ids : i32[R]"), "");
  refuses("graph", replaced(graph, "input rows", "input columns"), "columns");
  refuses("graph", replaced(graph, "output next", "output nexte"), "next");
  refuses("graph", replaced(graph, "[272,32]", "[4611686018427387904,32]"), "");
  refuses("weights", "[]", "is missing");
  refuses("weights", "{", "malformed");
  refuses("weights", std::string(100000, '['), "malformed");
  refuses("weights", "[1]", "malformed");
  refuses("weights", replaced(weights, R"("packing":")", R"("packing":"wide_)"), "wide_");
  refuses("weights", replaced(weights, "bf16[", "f32["), "not in its graph");
  refuses("weight.0", "short", "bytes");
  refuses("config", "[]", "");
  refuses("generation", "{", "");
  refuses("tokenizer", "", "malformed");
  refuses("tokenizer", std::string(1 << 20, '\x81'), "malformed");  // a million arrays in one another
  refuses("tokenizer", std::string("\x9b\xff\xff\xff\xff\xff\xff\xff\xff", 9), "malformed");
  refuses("tokenizer", std::string("\x7b\xff\xff\xff\xff\xff\xff\xff\xff", 9), "malformed");
  refuses("tokenizer", std::string("\xa0", 1), "malformed");
  for (const char* name : {"about", "config", "generation", "template", "tokenizer", "graph", "weights", "weight.3"}) {
    std::vector<EngineSectionData> sections;
    for (const EngineSection& section : file->sections())
      if (section.name != name) sections.push_back({section.name, *file->section(section.name, false)});
    const auto changed = folder.path() / "less.engine";
    ASSERT_TRUE(write_engine_file(changed, sections).has_value());
    EXPECT_NE(refusal(changed).find(std::string("no section ") + name), std::string::npos) << refusal(changed);
  }
}

TEST(Engine, WhatIsNoEngineAndWhatIsOneAlready) {
  const TemporaryFolder folder;
  const auto path = build(folder, "llama-bias");
  EXPECT_TRUE(is_engine(path));
  auto again = build_engine(path, folder.path() / "twice.engine", {});
  ASSERT_FALSE(again.has_value());
  EXPECT_NE(again.error().text.find("engine already"), std::string::npos) << again.error().text;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "twice.engine"));
  std::string other = contents(path);
  other[0] = 'b';
  const auto wrong = folder.write("wrong.engine", other);
  EXPECT_FALSE(is_engine(wrong));
  EXPECT_FALSE(open_model(wrong, plain_options()).has_value());
  other[0] = 'B', other[7] = 9;
  EXPECT_FALSE(open_model(folder.write("wrong.engine", other), plain_options()).has_value());
  EXPECT_FALSE(is_engine(folder.path()));
  EXPECT_FALSE(is_engine(folder.path() / "absent"));
  ModelOptions options = plain_options();
  options.config = golden_model("llama-bias") / "config.json";
  EXPECT_NE(refusal(path, options).find("configuration inside"), std::string::npos);
}

TEST(Engine, NothingButAnEngineIsOverwritten) {
  const TemporaryFolder folder;
  const auto checkpoint = folder.path() / "model.gguf";
  std::filesystem::copy(golden_model("llama-gguf-q4_0"), checkpoint);
  const std::string before = contents(checkpoint);
  const auto refused = build_engine(checkpoint, checkpoint, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text.find("no engine"), std::string::npos) << refused.error().text;
  EXPECT_TRUE(contents(checkpoint) == before);
  const auto path = folder.path() / "a.engine";
  EXPECT_TRUE(build_engine(checkpoint, path, {}).has_value());
  EXPECT_TRUE(build_engine(checkpoint, path, {}).has_value());
  EXPECT_FALSE(build_engine(checkpoint, folder.path(), {}).has_value());
  EXPECT_FALSE(build_engine(checkpoint, folder.path() / "no" / "folder.engine", {}).has_value());
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_TRUE(entry.path() == checkpoint || entry.path() == path) << entry.path() << " was left behind";
}

}  // namespace
}  // namespace bolide
