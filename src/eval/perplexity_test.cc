#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/file.h"
#include "eval/agree.h"
#include "eval/golden_files.h"
#include "eval/logits.h"
#include "eval/token_stream.h"

namespace bolide {
namespace {

namespace fs = std::filesystem;

fs::path model_folder(const char* name) { return fs::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models" / name; }

ModelOptions exact_options() {
  ModelOptions options;
  options.dtype = ComputeMode::kF32;
  options.kv_dtype = DType::kF32;
  options.threads = 1;
  return options;
}

std::string opticks(size_t bytes) {
  auto text = read_file(fs::path(BOLIDE_SOURCE_DIR) / "tests" / "data" / "opticks.txt");
  return text ? text->substr(0, bytes) : std::string();
}

TEST(Logits, AgreeWithDefinitions) {
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> a(97), b(97);
  for (float& v : a) v = normal(random);
  for (float& v : b) v = normal(random);
  long double pa = 0, pb = 0, kl = 0, difference = 0, norm = 0;
  for (const float v : a) pa += std::exp(static_cast<long double>(v));
  for (const float v : b) pb += std::exp(static_cast<long double>(v));
  for (size_t i = 0; i < a.size(); ++i) {
    const long double p = std::exp(static_cast<long double>(a[i])) / pa,
                      q = std::exp(static_cast<long double>(b[i])) / pb;
    kl += p * std::log(p / q);
    difference += std::pow(static_cast<long double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<long double>(a[i]), 2);
  }
  EXPECT_NEAR(kl_divergence(a, b), static_cast<double>(kl), 1e-9 * static_cast<double>(kl));
  EXPECT_NEAR(rel_l2(b, a), static_cast<double>(std::sqrt(difference / norm)), 1e-9);
  EXPECT_NEAR(log_probability(a, 5), std::log(static_cast<double>(std::exp(static_cast<long double>(a[5])) / pa)),
              1e-9);
  EXPECT_EQ(kl_divergence(a, a), 0);
  EXPECT_EQ(rel_l2(a, a), 0);
  b[3] = std::nanf("");
  EXPECT_TRUE(std::isinf(rel_l2(b, a)));
  EXPECT_TRUE(std::isinf(max_abs(b, a)));
  EXPECT_TRUE(std::isinf(kl_divergence(a, b)));
}

// Against the plain definition: each window computed at once, every prediction of its scored part summed.
TEST(Perplexity, IsTheDefinition) {
  const PerplexityOptions options{48, 17, 3};
  ModelOptions open = exact_options();
  prepare_options(options, &open);
  auto model = open_model(model_folder("llama-bias"), open);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  const std::string text = opticks(2000);
  int64_t steps = 0, inside = 0;
  const auto count = [&](const PerplexityProgress& p) {
    steps = p.windows_done;
    EXPECT_EQ(p.tokens, options.window);
    inside += p.tokens_done > 0 ? 1 : 0;
  };
  const FunctionRef<void(const PerplexityProgress&)> progress = count;
  const auto result = measure_perplexity(*model, text, options, &progress);
  ASSERT_TRUE(result.has_value()) << result.error().text;
  EXPECT_EQ(steps, 3);
  EXPECT_GE(inside, 6);  // the part that is not scored, and the rest, of each
  EXPECT_EQ(result->tokens, 3 * (48 - 17 - 1));

  open.rows_max = 64;
  auto other = open_model(model_folder("llama-bias"), open);
  ASSERT_TRUE(other.has_value());
  auto ids = other->tokenizer.encode(text);
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ((*ids)[0], 1);  // this tokenizer begins a text with <|bos|>
  double sum = 0;
  for (int w = 0; w < 3; ++w) {
    Sequence sequence;
    sequence.tokens.assign(ids->begin() + w * 48, ids->begin() + (w + 1) * 48);
    sequence.tokens[0] = 1;
    const Work work{&sequence, 48, true};
    ASSERT_TRUE(other->runner->step(std::span(&work, 1)).has_value());
    for (int t = 17; t + 1 < 48; ++t) {
      const TensorView logits = other->runner->logits().value();
      sum -= log_probability({logits.row<float>(t), static_cast<size_t>(logits.cols())},
                             sequence.tokens[static_cast<size_t>(t) + 1]);
    }
    other->runner->truncate(sequence, 0);
  }
  EXPECT_NEAR(result->perplexity, std::exp(sum / 90), 1e-4 * result->perplexity);
  EXPECT_GT(result->standard_error, 0);
}

TEST(Perplexity, RefusesSizesThatMakeNoSense) {
  ModelOptions open = exact_options();
  prepare_options(PerplexityOptions{}, &open);
  auto model = open_model(model_folder("qwen2"), open);
  ASSERT_TRUE(model.has_value()) << model.error().text;
  const std::string text = opticks(300);
  for (const PerplexityOptions& options :
       {PerplexityOptions{1, 0}, PerplexityOptions{64, 63}, PerplexityOptions{64, -1}, PerplexityOptions{1 << 20, 0},
        PerplexityOptions{512, 256}})
    EXPECT_FALSE(measure_perplexity(*model, text, options).has_value()) << options.window << " " << options.skip;
  EXPECT_TRUE(measure_perplexity(*model, text, {64, 62}).has_value());
  EXPECT_FALSE(measure_perplexity(*model, "\xff", {64, 62}).has_value());
}

TEST(Agree, OfAModelWithItselfAndInRoundedArithmetic) {
  const AgreeOptions options{64, 6};
  ModelOptions open = exact_options();
  prepare_options(options, &open);
  auto reference = open_model(model_folder("llama-rope-linear"), open),
       same = open_model(model_folder("llama-rope-linear"), open);
  open.dtype = ComputeMode::kBF16;
  open.kv_dtype = DType::kBF16;
  auto rounded = open_model(model_folder("llama-rope-linear"), open);
  ASSERT_TRUE(reference.has_value() && same.has_value() && rounded.has_value());
  const auto itself = measure_agreement(*same, *reference, sample_text(), options);
  ASSERT_TRUE(itself.has_value()) << itself.error().text;
  EXPECT_EQ(itself->tokens, 64 * 6);
  EXPECT_EQ(itself->top1, 1);
  EXPECT_EQ(itself->kl_max, 0);
  const auto close = measure_agreement(*rounded, *reference, sample_text(), options);
  ASSERT_TRUE(close.has_value());
  EXPECT_GT(close->kl_mean, 1e-9);
  EXPECT_LT(close->kl_mean, 1e-2);
  EXPECT_GE(close->kl_max, close->kl_mean);
  EXPECT_GT(close->top1, 0.9);
}

}  // namespace
}  // namespace bolide
