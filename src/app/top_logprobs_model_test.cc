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

}  // namespace
}  // namespace bolide
