#include "engine/timeline.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/engine.h"
#include "engine/testing/collector.h"
#include "engine/testing/fake_runner.h"

namespace bolide {
namespace {

SchedulerOptions limits() {
  SchedulerOptions options;
  options.blocks = 1000, options.block_tokens = 4, options.context = 256;
  options.sequences_max = 16, options.tokens_per_step = 16;
  options.prefix_cache = false;
  return options;
}

// timeline.complete
TEST(Timeline, HasEveryPositionOfEveryAnswer) {
  for (const size_t steps_ahead : {size_t{1}, size_t{2}}) {
    Engine engine(std::make_unique<FakeRunner>(limits(), steps_ahead), {});
    std::mt19937 random(std::random_device{}());
    std::vector<std::tuple<RequestId, Request, std::shared_ptr<Collector>>> asked;
    for (int i = 0; i < 20; ++i) {
      Request request;
      request.prompt.resize(1 + random() % 90);
      for (int32_t& token : request.prompt) token = static_cast<int32_t>(random() % FakeRunner::kVocab);
      request.tokens_max = static_cast<int32_t>(1 + random() % 20);
      request.choices = i % 4 == 0 ? 3 : 1;
      auto sink = std::make_shared<Collector>();
      const auto id = engine.submit(request, sink);
      ASSERT_TRUE(id.has_value());
      asked.emplace_back(*id, request, sink);
    }
    for (const auto& [id, request, sink] : asked) ASSERT_TRUE(sink->wait());
    ASSERT_TRUE(engine.wait_idle(10'000'000));
    for (const auto& [id, request, sink] : asked) {
      const auto timeline = engine.timeline(id);
      ASSERT_TRUE(timeline.has_value());
      EXPECT_EQ(timeline->prompt_tokens, static_cast<int32_t>(request.prompt.size()));
      std::vector<int32_t> next(static_cast<size_t>(request.choices), 0);  // position, by choice
      std::vector<int32_t> draws(next.size(), 0);
      int64_t last = timeline->accepted_us;
      for (const TimelineStep& step : timeline->steps) {
        const auto choice = static_cast<size_t>(step.choice);
        // The others begin where the prompt of the first ends.
        if (next[choice] == 0 && choice > 0) next[choice] = step.first;
        EXPECT_EQ(step.first, next[choice]);
        next[choice] += step.tokens;
        draws[choice] += step.draws ? 1 : 0;
        EXPECT_EQ(step.prompt, step.first < timeline->prompt_tokens);
        EXPECT_GE(step.batch_tokens, step.tokens);
        EXPECT_LE(step.begin_us, step.end_us);
        EXPECT_GE(step.end_us, last);
        last = step.end_us;
      }
      EXPECT_LE(last, timeline->over_us);
      for (size_t choice = 0; choice < next.size(); ++choice) {
        const auto answer = FakeRunner::answer(limits(), request, static_cast<int32_t>(choice));
        // With a step ahead one more may be computed than is needed.
        EXPECT_GE(next[choice], timeline->prompt_tokens + static_cast<int32_t>(answer.size()) - 1);
        EXPECT_GE(draws[choice] + (choice > 0 ? 1 : 0), static_cast<int32_t>(answer.size()));
      }
    }
    EXPECT_FALSE(engine.timeline(9999).has_value());
  }
}

TEST(Timeline, IsBounded) {
  TimelineBook book(3, 5);
  Request request;
  request.prompt = {1, 2, 3};
  AnswerState answer;
  StepBatch batch;
  for (RequestId id = 1; id <= 10; ++id) {
    request.id = id;
    answer.request = std::make_shared<const Request>(request);
    book.accepted(request, 0);
    for (int32_t step = 0; step < 9; ++step) {
      batch.items = {{.answer = &answer, .first = step, .tokens = 1, .draws = step >= 2}};
      batch.tokens = 1;
      book.step(batch, 10 * step, 10 * step + 9);
    }
    book.over(id, 100);
    book.over(id, 200);
  }
  EXPECT_FALSE(book.find(7).has_value());
  for (RequestId id = 8; id <= 10; ++id) {
    const auto timeline = book.find(id);
    ASSERT_TRUE(timeline.has_value());
    EXPECT_EQ(timeline->over_us, 100);
    ASSERT_EQ(timeline->steps.size(), 5u);
    EXPECT_EQ(timeline->steps.back().steps, 5);
    EXPECT_EQ(timeline->steps.back().tokens, 5);
    EXPECT_EQ(timeline->steps.back().begin_us, 40);
    EXPECT_EQ(timeline->steps.back().end_us, 89);
  }
}

}  // namespace
}  // namespace bolide
