// --deterministic: the bits of a token's logits depend on the tokens before it alone, not on how steps were cut, what
// else was in them, the number of threads or the layout of the cache.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "app/model.h"

namespace bolide {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kTokens = 33;   // of the sequence that is watched
constexpr int32_t kCompany = 16;  // sequences of a batch
constexpr int32_t kContext = 40;

struct Rows {
  std::vector<float> logits;    // [kTokens, V]
  std::vector<int32_t> next;    // [kTokens]
  std::vector<float> logprobs;  // [kTokens]
};

std::vector<int32_t> random_ids(int32_t count, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  return ids;
}

class Subject {
 public:
  Subject(const fs::path& path, ModelOptions options, uint64_t seed) : seed_(seed) {
    options.context = kContext;
    options.sequences = kCompany;
    options.tokens_per_step = options.rows_max = kCompany * kContext;
    auto opened = open_model(path, options);
    EXPECT_TRUE(opened.has_value()) << opened.error().text;
    if (opened.has_value()) model_ = std::make_unique<Model>(*std::move(opened));
  }
  bool ok() const { return model_ != nullptr; }

  // The watched sequence alone, in steps of these sizes over and over.
  Rows alone(std::vector<int32_t> chunks) {
    Sequence sequence = make_watched();
    Rows rows;
    for (size_t i = 0; sequence.computed < kTokens; ++i) {
      const int32_t tokens = std::min(chunks[i % chunks.size()], kTokens - sequence.computed);
      step({{&sequence, tokens, true}}, 0, tokens, &rows);
    }
    model_->runner->truncate(sequence, 0);
    return rows;
  }

  // Among 15 others of other lengths, `tokens` of each at a time, the watched one at place `place`.
  Rows in_company(int32_t tokens, size_t place) {
    std::vector<Sequence> sequences;
    for (size_t s = 0; s < kCompany; ++s) {
      sequences.push_back(s == place ? make_watched() : Sequence{});
      if (s == place) continue;
      sequences[s].tokens = random_ids(kTokens + static_cast<int32_t>(s % 7), model_->runner->vocab(), seed_ + 1 + s);
      sequences[s].request = s;
    }
    Rows rows;
    while (sequences[place].computed < kTokens) {
      std::vector<Work> work;
      int32_t before = 0, own = 0;
      for (size_t s = 0; s < kCompany; ++s) {
        const int32_t count = std::min(tokens + static_cast<int32_t>(s == place ? 0 : s % 3),
                                       sequences[s].size() - sequences[s].computed);
        if (count <= 0) continue;
        if (s < place) before += count;
        if (s == place) own = count;
        work.push_back({&sequences[s], count, true});
      }
      step(work, before, own, &rows);
    }
    for (Sequence& sequence : sequences) model_->runner->truncate(sequence, 0);
    return rows;
  }

 private:
  Sequence make_watched() const {
    Sequence sequence;
    sequence.tokens = random_ids(kTokens, model_->runner->vocab(), seed_);
    sequence.prompt_count = kTokens;
    sequence.request = 99;
    sequence.sampling.temperature = 0.8f;
    sequence.sampling.top_p = 0.9f;
    sequence.sampling.seed = 5;
    return sequence;
  }

  void step(const std::vector<Work>& work, int32_t first_row, int32_t count, Rows* rows) {
    Runner& runner = *model_->runner;
    const auto done = runner.step(work);
    ASSERT_TRUE(done.has_value()) << done.error().text;
    const TensorView logits = runner.logits().value();
    for (int32_t row = first_row; row < first_row + count; ++row) {
      rows->logits.insert(rows->logits.end(), logits.row<float>(row), logits.row<float>(row) + logits.cols());
      rows->next.push_back(runner.next()[row]);
      rows->logprobs.push_back(runner.logprobs()[row]);
    }
  }

  std::unique_ptr<Model> model_;
  uint64_t seed_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same(const Rows& expected, const Rows& got, const std::string& what) {
  ASSERT_EQ(expected.next.size(), static_cast<size_t>(kTokens)) << what;
  EXPECT_TRUE(same_bits(expected.logits, got.logits)) << what;
  EXPECT_TRUE(same_bits(expected.logprobs, got.logprobs)) << what;
  EXPECT_EQ(expected.next, got.next) << what;
}

std::vector<fs::path> checkpoints() {
  std::vector<fs::path> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(fs::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models", failed))
    if (fs::exists(entry.path() / "golden.json"))
      found.push_back(fs::exists(entry.path() / "model.gguf") ? entry.path() / "model.gguf" : entry.path());
  std::sort(found.begin(), found.end());
  // A model of the user's choice, by hand: a large one in all its arithmetics takes minutes.
  if (const char* more = std::getenv("BOLIDE_TEST_MODEL")) found.emplace_back(more);
  return found;
}

void check(const fs::path& path, ModelOptions options, const std::string& name) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("{}, seed {}", name, seed));
  options.deterministic = true;
  options.threads = 1;
  Subject one(path, options, seed);
  ASSERT_TRUE(one.ok());
  const Rows expected = one.alone({kTokens});
  ASSERT_FALSE(expected.logits.empty());
  EXPECT_TRUE(std::all_of(expected.logits.begin(), expected.logits.end(), [](float x) { return std::isfinite(x); }));
  expect_same(expected, one.alone({3, 5, 1, 7}), "odd chunks");
  expect_same(expected, one.alone({1}), "one by one");
  expect_same(expected, one.alone({25, 1}), "a prompt, then one by one");
  expect_same(expected, one.in_company(1, 6), "16 sequences, one token each or a few");
  options.threads = 2;
  options.block_tokens = kContext;
  Subject two(path, options, seed);
  ASSERT_TRUE(two.ok());
  expect_same(expected, two.alone({kTokens}), "2 threads, contiguous cache");
  expect_same(expected, two.alone({2, 9, 1}), "2 threads, contiguous cache, odd chunks");
  expect_same(expected, two.in_company(kTokens, 11), "2 threads, contiguous cache, 16 whole sequences");
}

TEST(Determinism, BitsDoNotDependOnHowTokensAreGrouped) {
  const auto paths = checkpoints();
  if (paths.empty()) GTEST_SKIP() << "tests/golden/models is empty";
  for (const fs::path& path : paths) {
    const std::string name =
        path.filename() == "model.gguf" ? path.parent_path().filename().string() : path.filename().string();
    ModelOptions options;
    check(path, options, name + " auto");
    options.dtype = ComputeMode::kBF16;
    check(path, options, name + " bf16");
    options.dtype = ComputeMode::kF32;
    options.kv_dtype = DType::kF32;
    check(path, options, name + " f32");
  }
}

TEST(Determinism, LowerInstructionSetsHoldItToo) {
  const auto paths = checkpoints();
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!supports(cpu, isa)) continue;
    for (const fs::path& path : paths) {
      if (path.string().find("qwen2") == std::string::npos && path.string().find("gguf-mixed") == std::string::npos)
        continue;
      ModelOptions options;
      options.isa = isa;
      check(path, options, fmt::format("{} {}", path.string(), to_string(isa)));
    }
  }
}

TEST(Determinism, TheFlagLeavesOutWhatDependsOnTheNumberOfTokens) {
  size_t left_out = 0;
  for (const Kernel* kernel : cpu_kernels().all()) {
    const bool kept = batch_invariant_cpu_kernels().find(kernel->name) != nullptr;
    EXPECT_EQ(kept, kernel->batch_invariant) << kernel->name;
    left_out += kept ? 0 : 1;
  }
  EXPECT_EQ(batch_invariant_cpu_kernels().all().size() + left_out, cpu_kernels().all().size());
  EXPECT_EQ(batch_invariant_cpu_kernels().find("linear_bf16_amx"), nullptr);
  EXPECT_NE(batch_invariant_cpu_kernels().find("linear_int8_amx"), nullptr);
}

}  // namespace
}  // namespace bolide
