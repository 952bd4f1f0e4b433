// The likeliest tokens that an engine gives, beside the logits of the model alone.
#include <gtest/gtest.h>

#include <cmath>

#include "app/test_models.h"
#include "engine/engine.h"
#include "engine/plan_runner.h"
#include "engine/testing/collector.h"
#include "engine/top_logprobs.h"

namespace bolide {
namespace {

using test::exact_options;
using test::golden_model;
using test::open_path;

TEST(TopLogprobs, OfAnEngineAreThoseOfTheModelsLogits) {
  for (const bool deferred : {false, true}) {
    ModelOptions options = exact_options();
    options.sequences = 4;
    options.deferred = deferred;
    Model model = open_path(golden_model("qwen3"), options);
    const std::unique_ptr<Device> device = std::move(model.device);
    Engine engine(std::make_unique<PlanRunner>(std::move(model.runner)), {});
    // Some want tokens, some do not, in the same steps.
    std::vector<std::pair<Request, std::shared_ptr<Collector>>> asked;
    for (int32_t i = 0; i < 4; ++i) {
      Request request;
      for (int32_t t = 0; t < 5 + i * 3; ++t) request.prompt.push_back((t * 31 + i * 7) % 200);
      request.tokens_max = 10;
      request.top_logprobs = i == 1 ? 0 : 3 + i;
      asked.emplace_back(request, std::make_shared<Collector>());
      ASSERT_TRUE(engine.submit(request, asked.back().second).has_value());
    }
    Model alone = open_path(golden_model("qwen3"), exact_options());
    for (const auto& [request, sink] : asked) {
      Sequence sequence;
      sequence.tokens = request.prompt;
      ASSERT_TRUE(sink->wait());
      EXPECT_EQ(sink->failure(), "");
      for (const Progress& progress : sink->progress()) {
        ASSERT_EQ(progress.top.size(), static_cast<size_t>(request.top_logprobs)) << deferred;
        const Work work{&sequence, sequence.size() - sequence.computed};
        test::must(alone.runner->step(std::span(&work, 1)));
        const std::vector<float> logits = test::row_of(alone, 0);
        double sum = 0;
        for (const float x : logits) sum += std::exp(double{x});
        const auto expected = top_logprobs(logits, request.top_logprobs, std::log(sum));
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(progress.top[i].id, expected[i].id);
          EXPECT_NEAR(progress.top[i].logprob, expected[i].logprob, 1e-3);
        }
        if (!expected.empty()) {
          EXPECT_EQ(progress.top[0].id, progress.token) << "the draw is greedy";
          EXPECT_NEAR(progress.top[0].logprob, progress.logprob, 1e-5);
        }
        sequence.tokens.push_back(progress.token);
      }
      alone.runner->truncate(sequence, 0);
    }
    engine.stop();
  }
}

// Prompts in pieces, several at once and twice the same: every token's log-probability is that of the logits before it.
TEST(PromptLogprobs, OfAnEngineAreThoseOfTheModelsLogits) {
  for (const bool deferred : {false, true}) {
    ModelOptions options = exact_options();
    options.sequences = 4;
    options.deferred = deferred;
    options.tokens_per_step = 24;
    options.rows_max = 16;
    options.block_tokens = 4;
    Model model = open_path(golden_model("qwen3"), options);
    const std::unique_ptr<Device> device = std::move(model.device);
    Engine engine(std::make_unique<PlanRunner>(std::move(model.runner)), {});
    std::vector<std::pair<Request, std::shared_ptr<Collector>>> asked;
    for (int32_t i = 0; i < 9; ++i) {
      Request request;
      for (int32_t t = 0; t < 1 + (i + 3) % 4 * 20; ++t) request.prompt.push_back((t * 31 + 7) % 200);
      request.tokens_max = 1 + i % 3;
      request.choices = 1 + i % 2;
      request.prompt_logprobs = i % 3 != 1;
      request.top_logprobs = i % 3;
      asked.emplace_back(request, std::make_shared<Collector>());
      ASSERT_TRUE(engine.submit(request, asked.back().second).has_value());
    }
    ModelOptions all_rows = exact_options();
    all_rows.rows_max = 128;
    Model alone = open_path(golden_model("qwen3"), all_rows);
    for (const auto& [request, sink] : asked) {
      std::vector<ScoredToken> scored;
      ASSERT_TRUE(sink->wait());
      for (const Progress& progress : sink->progress()) {
        EXPECT_TRUE(progress.prompt.empty() || progress.token < 0);
        scored.insert(scored.end(), progress.prompt.begin(), progress.prompt.end());
      }
      ASSERT_EQ(scored.size(), request.prompt_logprobs ? request.prompt.size() - 1 : 0);
      if (scored.empty()) continue;
      Sequence sequence;
      sequence.tokens = request.prompt;
      const Work work{&sequence, sequence.size(), /*all_logits=*/true};
      test::must(alone.runner->step(std::span(&work, 1)));
      for (size_t i = 0; i < scored.size(); ++i) {
        const std::vector<float> logits = test::row_of(alone, static_cast<int64_t>(i));
        double sum = 0;
        for (const float x : logits) sum += std::exp(double{x});
        const double log_total = std::log(sum);
        EXPECT_NEAR(scored[i].logprob, logits[static_cast<size_t>(request.prompt[i + 1])] - log_total, 1e-3);
        const auto expected = top_logprobs(logits, request.top_logprobs, log_total);
        ASSERT_EQ(scored[i].top.size(), expected.size());
        for (size_t k = 0; k < expected.size(); ++k) EXPECT_NEAR(scored[i].top[k].logprob, expected[k].logprob, 1e-3);
      }
      alone.runner->truncate(sequence, 0);
    }
    engine.stop();
  }
}

}  // namespace
}  // namespace bolide
