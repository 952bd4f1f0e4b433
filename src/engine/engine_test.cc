#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "engine/testing/collector.h"
#include "engine/testing/fake_runner.h"
#include "engine/testing/gate.h"

namespace bolide {
namespace {

SchedulerOptions limits() {
  SchedulerOptions options;
  options.blocks = 4000;
  options.block_tokens = 4;
  options.context = 256;
  options.sequences_max = 64;
  options.tokens_per_step = 512;
  return options;
}

Request random_request(std::mt19937& random) {
  Request request;
  request.prompt.resize(1 + random() % 60);
  for (int32_t& token : request.prompt) token = static_cast<int32_t>(random() % FakeRunner::kVocab);
  request.tokens_max = static_cast<int32_t>(1 + random() % 30);
  return request;
}

// streams.order, streams.complete
TEST(Engine, ManyThreadsGetTheirAnswers) {
  for (const size_t steps_ahead : {size_t{1}, size_t{2}}) {
    Engine engine(std::make_unique<FakeRunner>(limits(), steps_ahead), {.secret = 5, .queue_requests_max = 100000});
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t)
      threads.emplace_back([&engine, t] {
        std::mt19937 random(t);
        std::vector<std::pair<Request, std::shared_ptr<Collector>>> asked;
        for (int i = 0; i < 100; ++i) {
          Request request = random_request(random);
          request.choices = i % 7 == 0 ? 3 : 1;
          auto sink = std::make_shared<Collector>();
          ASSERT_TRUE(engine.submit(request, sink).has_value());
          asked.emplace_back(std::move(request), std::move(sink));
        }
        for (const auto& [request, sink] : asked) {
          ASSERT_TRUE(sink->wait());
          for (int32_t choice = 0; choice < request.choices; ++choice)
            EXPECT_EQ(sink->answers()[choice], FakeRunner::answer(limits(), request, choice));
        }
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(engine.wait_idle(10'000'000));
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.scheduler.blocks_used, 0);
    EXPECT_GT(stats.steps, 0);
    EXPECT_FALSE(stats.stalled());
  }
}

// blocks.cancel
TEST(Engine, CancelsLeaveNothingBehind) {
  Engine engine(std::make_unique<FakeRunner>(limits(), 2), {.queue_requests_max = 100000});
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<RequestId, std::shared_ptr<Collector>>> asked;
    for (int i = 0; i < 50; ++i) {
      Request request = random_request(random);
      request.tokens_max = 200;
      auto sink = std::make_shared<Collector>();
      const auto id = engine.submit(request, sink);
      ASSERT_TRUE(id.has_value());
      asked.emplace_back(*id, std::move(sink));
      if (random() % 3 == 0) std::this_thread::yield();
      if (random() % 2 == 0) engine.cancel(asked[random() % asked.size()].first);
      if (random() % 5 == 0) engine.finish(asked[random() % asked.size()].first, 0);
    }
    for (const auto& [id, sink] : asked) engine.cancel(id);
    ASSERT_TRUE(engine.wait_idle(10'000'000));
    EXPECT_EQ(engine.stats().scheduler.blocks_used, 0);
    EXPECT_EQ(engine.stats().scheduler.waiting, 0);
  }
}

// queue.bounded
TEST(Engine, TooManyRequestsAreRefusedAtOnce) {
  Gate gate;
  auto runner = std::make_unique<FakeRunner>(limits());
  runner->on_submit = [&](const StepBatch&) { return gate.pass(); };
  Engine engine(std::move(runner), {.queue_requests_max = 70, .queue_tokens_max = 1000});
  std::mt19937 random(4);
  std::vector<std::shared_ptr<Collector>> accepted;
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    auto sink = std::make_shared<Collector>();
    const auto id = engine.submit(random_request(random), sink);
    if (id) {
      accepted.push_back(std::move(sink));
    } else {
      EXPECT_EQ(id.error().code, Code::kOverloaded);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GE(accepted.size(), 10u);
  gate.open();
  for (const auto& sink : accepted) EXPECT_TRUE(sink->wait());
}

// Whoever comes and goes during a step keeps nobody else out.
TEST(Engine, ThoseThatLeftDoNotWait) {
  Gate gate;
  auto runner = std::make_unique<FakeRunner>(limits());
  runner->on_submit = [&](const StepBatch&) { return gate.pass(); };
  Engine engine(std::move(runner), {.queue_requests_max = 4, .queue_tokens_max = 1000});
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto first = std::make_shared<Collector>(), last = std::make_shared<Collector>();
  ASSERT_TRUE(engine.submit(random_request(random), first).has_value());
  while (engine.stats().step_us == 0) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    const auto id = engine.submit(random_request(random), std::make_shared<Collector>());
    ASSERT_TRUE(id.has_value()) << i << ": " << id.error().text;
    engine.cancel(*id);
  }
  EXPECT_EQ(engine.stats().queued, 0);
  EXPECT_TRUE(engine.submit(random_request(random), last).has_value());
  gate.open();
  EXPECT_TRUE(first->wait());
  EXPECT_TRUE(last->wait());
  EXPECT_TRUE(engine.wait_idle(60'000'000));
}

// queue.bounded: nor do those that the scheduler has already.
TEST(Engine, ThoseThatLeftTheSchedulerDoNotWait) {
  Gate first_step, second_step;
  std::atomic<int> steps{0};
  SchedulerOptions one = limits();
  one.sequences_max = 1;
  auto runner = std::make_unique<FakeRunner>(one);
  runner->on_submit = [&](const StepBatch&) { return ++steps == 1 ? first_step.pass() : second_step.pass(); };
  Engine engine(std::move(runner), {.queue_requests_max = 4, .queue_tokens_max = 12});
  Request request;
  request.prompt = {1, 2, 3};
  request.tokens_max = 5;
  std::vector<std::shared_ptr<Collector>> sinks = {std::make_shared<Collector>()};
  ASSERT_TRUE(engine.submit(request, sinks[0]).has_value());
  while (steps == 0) std::this_thread::yield();
  std::vector<RequestId> waiting;
  for (int i = 0; i < 4; ++i) {
    const auto id = engine.submit(request, std::make_shared<Collector>());
    ASSERT_TRUE(id.has_value()) << i;
    waiting.push_back(*id);
  }
  first_step.open();
  while (steps == 1) std::this_thread::yield();
  EXPECT_EQ(engine.stats().queued, 0);
  EXPECT_EQ(engine.stats().waiting, 4);
  EXPECT_EQ(engine.stats().waiting_tokens, 12);
  EXPECT_FALSE(engine.submit(request, std::make_shared<Collector>()).has_value());
  for (const RequestId id : waiting) engine.cancel(id);
  EXPECT_EQ(engine.stats().waiting, 0) << "though a step still runs";
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    EXPECT_TRUE(engine.submit(request, sinks.back()).has_value()) << i;
  }
  second_step.open();
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->wait());
    EXPECT_EQ(sink->answers()[0].size(), 5u);
  }
  EXPECT_TRUE(engine.wait_idle(60'000'000));
  EXPECT_EQ(engine.stats().waiting, 0);
  EXPECT_EQ(engine.stats().waiting_tokens, 0);
}

// lifecycle.failure
TEST(Engine, AFailureIsToldToEverybody) {
  auto runner = std::make_unique<FakeRunner>(limits());
  int steps = 0;
  runner->on_submit = [&](const StepBatch&) -> Result<> {
    if (++steps > 3) return error(Code::kUnavailable, "the GPU fell off the bus");
    return {};
  };
  Engine engine(std::move(runner), {});
  std::mt19937 random(5);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 20; ++i) {
    Request request = random_request(random);
    request.tokens_max = 100;
    auto sink = std::make_shared<Collector>();
    if (engine.submit(request, sink)) sinks.push_back(std::move(sink));
  }
  ASSERT_FALSE(sinks.empty());
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->wait());
    EXPECT_NE(sink->failure().find("fell off the bus"), std::string::npos);
  }
  EXPECT_EQ(engine.stats().state, EngineState::kFailed);
  const auto id = engine.submit(random_request(random), std::make_shared<Collector>());
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().code, Code::kUnavailable);
  EXPECT_NE(id.error().text.find("fell off the bus"), std::string::npos);
}

// lifecycle.drain
TEST(Engine, ADrainLosesNothing) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Engine engine(std::make_unique<FakeRunner>(limits(), 1 + seed % 2), {.queue_requests_max = 100000});
    std::vector<std::vector<std::shared_ptr<Collector>>> accepted(2);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(seed * 10 + static_cast<uint32_t>(t));
        for (int i = 0; i < 200; ++i) {
          auto sink = std::make_shared<Collector>();
          const auto id = engine.submit(random_request(random), sink);
          if (!id) {
            EXPECT_EQ(id.error().code, Code::kUnavailable);
            return;
          }
          accepted[t].push_back(std::move(sink));
        }
      });
    std::this_thread::sleep_for(std::chrono::microseconds(seed * 50));
    engine.drain();
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(engine.wait_idle(30'000'000));
    for (const auto& sinks : accepted)
      for (const auto& sink : sinks) {
        EXPECT_TRUE(sink->over());
        EXPECT_EQ(sink->failure(), "");
      }
  }
}

// lifecycle.stall
TEST(Engine, AStepThatHangsIsSeenWhileItHangs) {
  Gate gate;
  auto runner = std::make_unique<FakeRunner>(limits());
  runner->on_submit = [&](const StepBatch&) { return gate.pass(); };
  Engine engine(std::move(runner), {});
  Request request;
  request.prompt = {1, 2, 3};
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine.submit(request, sink).has_value());
  while (engine.stats().step_us < 20'000) std::this_thread::yield();
  EXPECT_FALSE(engine.stats().stalled()) << "20 ms are nothing";
  gate.open();
  ASSERT_TRUE(sink->wait());
  ASSERT_TRUE(engine.wait_idle(10'000'000));
  EXPECT_EQ(engine.stats().step_us, 0);
  EngineStats stats;
  stats.step_us = 5'000'001;
  EXPECT_TRUE(stats.stalled());
  stats.step_predicted_us = 2'000'000;
  EXPECT_FALSE(stats.stalled());
  stats.step_us = 8'000'001;
  EXPECT_TRUE(stats.stalled());
}

// lifecycle.stop
TEST(Engine, ManyMayStopItAtOnce) {
  for (int round = 0; round < 20; ++round) {
    Engine engine(std::make_unique<FakeRunner>(limits()), {});
    auto sink = std::make_shared<Collector>();
    Request request;
    request.prompt = {1, 2, 3};
    request.tokens_max = 200;
    ASSERT_TRUE(engine.submit(request, sink).has_value());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        engine.stop();
        EXPECT_EQ(engine.stats().state, EngineState::kStopped);
        EXPECT_TRUE(sink->over());
      });
    for (std::thread& thread : threads) thread.join();
    engine.stop();
    EXPECT_FALSE(engine.submit(request, sink).has_value());
  }
}

// lifecycle.stop
TEST(Engine, AStepThatNeverEndsDoesNotHoldUpTheEnd) {
  Gate gate;
  auto runner = std::make_unique<FakeRunner>(limits());
  runner->on_submit = [&](const StepBatch&) { return gate.pass(); };
  Engine engine(std::move(runner), {});
  Request request;
  request.prompt = {1, 2, 3};
  const auto runs = std::make_shared<Collector>(), waits = std::make_shared<Collector>();
  const auto left = std::make_shared<Collector>();
  ASSERT_TRUE(engine.submit(request, runs).has_value());
  while (engine.stats().step_us == 0) std::this_thread::yield();
  ASSERT_TRUE(engine.submit(request, waits).has_value());
  const auto id = engine.submit(request, left);
  ASSERT_TRUE(id.has_value());
  engine.cancel(*id);
  EXPECT_FALSE(engine.stop_within(20'000));
  for (const auto& sink : {runs, waits}) {
    EXPECT_TRUE(sink->over());
    EXPECT_NE(sink->failure().find("does not end"), std::string::npos) << sink->failure();
  }
  EXPECT_FALSE(left->over()) << "it wanted to hear no more";
  EXPECT_FALSE(engine.submit(request, std::make_shared<Collector>()).has_value());
  gate.open();
  EXPECT_TRUE(engine.stop_within(60'000'000));
}

TEST(Engine, StoppingTellsWhoWaits) {
  auto sink = std::make_shared<Collector>();
  {
    Engine engine(std::make_unique<FakeRunner>(limits()), {});
    Request request;
    request.prompt = {1, 2, 3};
    request.tokens_max = 250;
    ASSERT_TRUE(engine.submit(request, sink).has_value());
  }
  ASSERT_TRUE(sink->wait());
  EXPECT_TRUE(!sink->failure().empty() || sink->answers()[0].size() == 250);
}

}  // namespace
}  // namespace bolide
