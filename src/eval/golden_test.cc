#include "eval/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "eval/golden_files.h"

namespace bolide {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_in(const fs::path& root) {
  std::vector<fs::path> folders;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(root, failed))
    if (fs::exists(entry.path() / "golden.json")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

fs::path own_models() { return fs::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models"; }

fs::path shared_models() {
  const char* set = std::getenv("BOLIDE_SHARED");
  return (set != nullptr ? fs::path(set) : fs::path(BOLIDE_SOURCE_DIR) / ".." / "shared") / "data" / "models";
}

void expect_golden(const fs::path& folder, const GoldenOptions& options, const std::string& what) {
  const auto result = check_golden(folder, options);
  ASSERT_TRUE(result.has_value()) << folder.filename() << " " << what << ": " << result.error().text;
  EXPECT_GT(result->checks.size(), 10u);
  for (const GoldenCheck& check : result->checks)
    EXPECT_TRUE(check.pass()) << result->name << " " << what << " " << check.check << ": " << check.got << ", limit "
                              << check.limit;
  if (const GoldenCheck* worst = result->worst())
    fmt::print("{} {}: {} {:.2g} of {:.2g}, {} checks\n", result->name, what, worst->check, worst->got, worst->limit,
               result->checks.size());
}

bool has_line(const fs::path& folder, const char* name) {
  const auto golden = read_golden(folder);
  return golden.has_value() && golden->tolerance.contains(name);
}

// Every instruction set that this machine has.
std::vector<Isa> levels() {
  std::vector<Isa> list;
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx})
    if (supports(cpu, isa)) list.push_back(isa);
  return list;
}

// The checkpoints of tools/golden/make_fast_models.py; empty where they were not made.
fs::path fast_models() {
  const char* set = std::getenv("BOLIDE_FAST_MODELS");
  return set != nullptr ? fs::path(set) : fs::path();
}

void check_all(const std::vector<fs::path>& folders, ComputeMode dtype, const char* line) {
  for (const Isa isa : levels())
    for (const fs::path& folder : folders) {
      if (!has_line(folder, line)) continue;
      GoldenOptions options;
      options.open.dtype = dtype;
      options.open.isa = isa;
      options.open.threads = 1;
      expect_golden(folder, options, fmt::format("{} {}", line, to_string(isa)));
    }
}

TEST(Golden, OwnModelsFloat32) {
  ASSERT_FALSE(folders_in(own_models()).empty());
  check_all(folders_in(own_models()), ComputeMode::kF32, "float32");
}
TEST(Golden, OwnModelsBFloat16) { check_all(folders_in(own_models()), ComputeMode::kBF16, "bfloat16"); }
TEST(Golden, OwnModelsInt8) { check_all(folders_in(own_models()), ComputeMode::kInt8, "int8"); }

TEST(Golden, SharedModelsFloat32) {
  if (!fs::exists(shared_models())) GTEST_SKIP() << "no reference data at " << shared_models();
  check_all(folders_in(shared_models()), ComputeMode::kF32, "float32");
}
TEST(Golden, SharedModelsBFloat16) {
  if (!fs::exists(shared_models())) GTEST_SKIP() << "no reference data at " << shared_models();
  check_all(folders_in(shared_models()), ComputeMode::kBF16, "bfloat16");
}

// Wide enough for every kernel, at the machine's own instruction set; and no last resort may be in their plans.
void check_fast_models(ComputeMode dtype, const char* line) {
  if (!fs::exists(fast_models()))
    GTEST_SKIP()
        << "no checkpoints: tools/golden/make_fast_models.py OUT makes them, BOLIDE_FAST_MODELS=OUT names them";
  int checked = 0;
  for (const fs::path& folder : folders_in(fast_models())) {
    if (!has_line(folder, line)) continue;
    GoldenOptions options;
    options.open.dtype = dtype;
    options.no_reference_kernels = supports(detect_cpu(), Isa::kAvx2);
    expect_golden(folder, options, line);
    ++checked;
  }
  EXPECT_GE(checked, 4);
}
TEST(Golden, FastModelsFloat32) { check_fast_models(ComputeMode::kF32, "float32"); }
TEST(Golden, FastModelsBFloat16) { check_fast_models(ComputeMode::kBF16, "bfloat16"); }
TEST(Golden, FastModelsInt8) { check_fast_models(ComputeMode::kInt8, "int8"); }

// The plans of a processor without vector instructions are made of nothing else.
TEST(Golden, FindsReferenceKernels) {
  GoldenOptions options;
  options.open.isa = Isa::kScalar;
  options.no_reference_kernels = true;
  const auto result = check_golden(own_models() / "qwen3", options);
  ASSERT_TRUE(result.has_value()) << result.error().text;
  int found = 0;
  for (const GoldenCheck& check : result->checks) {
    if (!check.check.starts_with("reference_kernels.")) continue;
    ++found;
    EXPECT_FALSE(check.pass()) << check.check;
    EXPECT_NE(check.note.find("linear_ref"), std::string::npos) << check.note;
    EXPECT_NE(check.note.find("attention_ref"), std::string::npos) << check.note;
  }
  EXPECT_EQ(found, 5);
}

// config.json as transformers 5 writes it gives the same model.
TEST(Golden, NewConfigStyle) {
  int found = 0;
  for (const fs::path& root : {own_models(), shared_models()})
    for (const fs::path& folder : folders_in(root)) {
      if (!fs::exists(folder / "config.v5.json")) continue;
      ++found;
      GoldenOptions options;
      options.open.config = folder / "config.v5.json";
      options.open.threads = 2;
      expect_golden(folder, options, "config.v5.json");
    }
  EXPECT_GT(found, 5);
}

// The graph as the builder made it, without any rewrite, computes the same.
TEST(Golden, WithoutPasses) {
  for (const fs::path& folder : folders_in(own_models())) {
    GoldenOptions options;
    for (const Pass& pass : default_passes()) options.open.skip_passes.emplace(pass.name);
    expect_golden(folder, options, "no passes");
  }
}

// A check that cannot fail would show nothing: other weights, and each parameter a little off, are found.
TEST(Golden, FindsOtherWeights) {
  GoldenOptions options;
  options.model = own_models() / "llama-rope-yarn";
  const auto other = check_golden(own_models() / "llama-rope-linear", options);
  ASSERT_TRUE(other.has_value()) << other.error().text;
  EXPECT_FALSE(other->pass());
}

// Who looks for the first wrong layer reads from the top.
TEST(Golden, HiddenStatesComeInTheModelsOrder) {
  const auto result = check_golden(own_models() / "qwen3", {});
  ASSERT_TRUE(result.has_value()) << result.error().text;
  std::vector<std::string> states;
  for (const GoldenCheck& check : result->checks)
    if (check.check.starts_with("hidden.")) states.push_back(check.check);
  EXPECT_EQ(states, (std::vector<std::string>{"hidden.embed", "hidden.layer0", "hidden.layer1", "hidden.final_norm"}));
}

struct Mistake {
  const char* model;
  const char* from;
  const char* to;
};

TEST(Golden, FindsWrongParameters) {
  constexpr Mistake kMistakes[] = {
      {"llama-bias", "\"rope_theta\": 10000.0", "\"rope_theta\": 10500.0"},
      {"llama-rope-linear", "\"factor\": 2.5", "\"factor\": 2.4"},
      {"llama-rope-dynamic", "\"factor\": 2.0", "\"factor\": 2.1"},
      {"llama-rope-dynamic", "\"max_position_embeddings\": 40", "\"max_position_embeddings\": 41"},
      {"llama-rope-llama3", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 1.5"},
      {"llama-rope-llama3", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 3.0"},
      {"llama-rope-yarn", "\"beta_slow\": 0.5", "\"beta_slow\": 1.0"},
      {"llama-rope-yarn", "\"beta_fast\": 4.0", "\"beta_fast\": 2.0"},
      {"mistral-window", "\"sliding_window\": 13", "\"sliding_window\": 14"},
      {"qwen2", "\"rms_norm_eps\": 0.001", "\"rms_norm_eps\": 0.0009"},
      {"phi3-longrope", "5.0", "5.2"},
      {"phi3-longrope", "1.1", "1.2"},
      {"phi3-longrope", "\"original_max_position_embeddings\": 48", "\"original_max_position_embeddings\": 49"},
      {"mixtral", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 3"},
      {"llama-gptq", "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"gptq_v2\""},
      {"gpt2", "\"layer_norm_epsilon\": 0.001", "\"layer_norm_epsilon\": 0.0009"},
      {"gpt2", "\"gelu_new\"", "\"gelu\""},
  };
  const fs::path changed = fs::path(testing::TempDir()) / "golden_test_config.json";
  for (const Mistake& mistake : kMistakes) {
    const fs::path folder = own_models() / mistake.model;
    std::ifstream in(folder / "config.json");
    std::string config((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const size_t at = config.find(mistake.from);
    ASSERT_NE(at, std::string::npos) << mistake.model << " " << mistake.from;
    config.replace(at, std::string(mistake.from).size(), mistake.to);
    std::ofstream(changed) << config;
    GoldenOptions options;
    options.open.config = changed;
    const auto result = check_golden(folder, options);
    ASSERT_TRUE(result.has_value()) << mistake.model << " " << mistake.to << ": " << result.error().text;
    EXPECT_FALSE(result->pass()) << mistake.model << " " << mistake.to;
  }
  fs::remove(changed);
}

TEST(Golden, RefusesWhatIsNoGolden) {
  const auto missing = check_golden(own_models() / "no-such-model", {});
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().text.find("golden.json"), std::string::npos) << missing.error().text;
  GoldenOptions int8;
  int8.open.dtype = ComputeMode::kInt8;
  const auto line = check_golden(own_models() / "qwen3", int8);
  ASSERT_FALSE(line.has_value());
  EXPECT_NE(line.error().text.find("no tolerance for int8"), std::string::npos) << line.error().text;
}

}  // namespace
}  // namespace bolide
