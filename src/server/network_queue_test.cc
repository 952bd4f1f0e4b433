#include "server/network_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "base/clock.h"

namespace bolide::server {
namespace {

using Values = NetworkQueue::Values;
using Times = NetworkQueue::Times;
constexpr int64_t kPatience = 60'000'000;

Values values_of(float x) { return {AnyValue(Tensor::vector(DType::kF32, std::span<const float>(&x, 1)))}; }
float number_of(const Values& values) { return values.at(0).tensor()->as<float>()[0]; }

// A run that waits until the gate is open, and doubles its input.
struct Gate {
  std::promise<void> promise;
  std::shared_future<void> opened = promise.get_future().share();
  std::atomic<int> begun{0};

  NetworkQueue::Run run() {
    return [this](const Values& inputs) -> Result<Values> {
      ++begun;
      opened.wait();
      return values_of(2 * number_of(inputs));
    };
  }
  void open() { promise.set_value(); }
  void wait_begun(int count) const {
    while (begun < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

// What came of a job.
struct Outcome {
  std::promise<Result<Values>> promise;
  std::future<Result<Values>> result = promise.get_future();

  NetworkQueue::Job job(float x, int64_t deadline_us = kNoDeadline) {
    NetworkQueue::Job job;
    job.inputs = values_of(x);
    job.bytes = sizeof x;
    job.deadline_us = deadline_us;
    job.done = [this](Result<Values> values, const Times&) { promise.set_value(std::move(values)); };
    return job;
  }
  Code code() {
    const auto got = result.get();
    return got.has_value() ? Code::kInternal : got.error().code;
  }
};

std::vector<NetworkQueue::Run> one(Gate& gate) { return {gate.run()}; }

TEST(NetworkQueue, EveryJobGetsItsOwnOutputs) {
  std::atomic<int> at_once{0}, most{0};
  const NetworkQueue::Run run = [&](const Values& inputs) -> Result<Values> {
    const int now = ++at_once;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    --at_once;
    return values_of(number_of(inputs) + 1);
  };
  NetworkQueue queue({run, run, run}, {});
  std::vector<Outcome> outcomes(200);
  for (size_t i = 0; i < outcomes.size(); ++i)
    ASSERT_TRUE(queue.submit(outcomes[i].job(static_cast<float>(i))).has_value());
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const auto got = outcomes[i].result.get();
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(number_of(*got), static_cast<float>(i + 1));
  }
  EXPECT_LE(most, 3);
  EXPECT_TRUE(queue.wait_idle(kPatience));
}

TEST(NetworkQueue, ItRefusesWhatIsTooMuch) {
  Gate gate;
  NetworkQueue queue(one(gate), {.requests_max = 2, .bytes_max = 6});
  Outcome first, second, third, fourth;
  ASSERT_TRUE(queue.submit(first.job(1)).has_value());
  gate.wait_begun(1);
  ASSERT_TRUE(queue.submit(second.job(2)).has_value());
  auto bytes = queue.submit(third.job(3));
  ASSERT_FALSE(bytes.has_value()) << "4 and 4 bytes of 6";
  EXPECT_EQ(bytes.error().code, Code::kOverloaded);
  auto small = third.job(3);
  small.bytes = 1;
  ASSERT_TRUE(queue.submit(std::move(small)).has_value());
  auto more = fourth.job(4);
  more.bytes = 0;
  EXPECT_FALSE(queue.submit(std::move(more)).has_value()) << "a third that waits";
  EXPECT_EQ(queue.stats().waiting, 2u);
  gate.open();
  EXPECT_EQ(number_of(*first.result.get()), 2);
  EXPECT_EQ(number_of(*second.result.get()), 4);
  EXPECT_EQ(number_of(*third.result.get()), 6);
  EXPECT_TRUE(queue.wait_idle(kPatience));
}

TEST(NetworkQueue, DeadlinesEndWaitingAndRunning) {
  Gate gate;
  NetworkQueue queue(one(gate), {});
  Outcome runs, waits, later;
  ASSERT_TRUE(queue.submit(later.job(5, steady_us() + kPatience)).has_value());
  gate.wait_begun(1);
  ASSERT_TRUE(queue.submit(waits.job(2, steady_us() + 1000)).has_value());
  EXPECT_EQ(waits.code(), Code::kDeadline);
  EXPECT_EQ(queue.stats().waiting, 0u);
  EXPECT_EQ(later.result.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  gate.open();
  EXPECT_EQ(number_of(*later.result.get()), 10);

  Gate shut;
  NetworkQueue stuck(one(shut), {});
  ASSERT_TRUE(stuck.submit(runs.job(1, steady_us() + 1000)).has_value());
  EXPECT_EQ(runs.code(), Code::kDeadline) << "although it runs";
  shut.open();
  EXPECT_TRUE(stuck.wait_idle(kPatience));
}

TEST(NetworkQueue, NobodyHearsOfACancelledJob) {
  Gate gate;
  NetworkQueue queue(one(gate), {});
  std::atomic<int> heard{0};
  const auto job = [&] {
    NetworkQueue::Job made;
    made.inputs = values_of(1);
    made.done = [&](const Result<Values>&, const Times&) { ++heard; };
    return made;
  };
  const auto runs = queue.submit(job());
  gate.wait_begun(1);
  const auto waits = queue.submit(job());
  EXPECT_TRUE(queue.cancel(*waits));
  EXPECT_FALSE(queue.cancel(*waits)) << "twice";
  EXPECT_TRUE(queue.cancel(*runs));
  EXPECT_FALSE(queue.wait_idle(1000)) << "it still runs";
  gate.open();
  EXPECT_TRUE(queue.wait_idle(kPatience));
  EXPECT_EQ(gate.begun, 1) << "the one that waited was not run";
  EXPECT_EQ(heard, 0);
}

TEST(NetworkQueue, DrainingLetsAcceptedJobsEnd) {
  Gate gate;
  NetworkQueue queue(one(gate), {});
  Outcome first, second, late;
  ASSERT_TRUE(queue.submit(first.job(1)).has_value());
  ASSERT_TRUE(queue.submit(second.job(2)).has_value());
  queue.drain();
  const auto refused = queue.submit(late.job(3));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  gate.open();
  EXPECT_TRUE(queue.wait_idle(kPatience));
  EXPECT_EQ(number_of(*first.result.get()), 2);
  EXPECT_EQ(number_of(*second.result.get()), 4);
}

TEST(NetworkQueue, StoppingFailsWhatWaits) {
  Gate gate;
  NetworkQueue queue(one(gate), {});
  Outcome runs, waits;
  ASSERT_TRUE(queue.submit(runs.job(1)).has_value());
  gate.wait_begun(1);
  ASSERT_TRUE(queue.submit(waits.job(2)).has_value());
  std::thread opener([&] {
    EXPECT_EQ(waits.code(), Code::kUnavailable);
    gate.open();
  });
  queue.stop();
  opener.join();
  EXPECT_EQ(number_of(*runs.result.get()), 2);
  queue.stop();  // twice is once
}

// A run that never ends does not hold up the end, and keeps nobody waiting.
TEST(NetworkQueue, ARunThatNeverEndsIsLeftBehind) {
  Gate gate;
  NetworkQueue queue({gate.run()}, {});
  Outcome runs, waits;
  ASSERT_TRUE(queue.submit(runs.job(1)).has_value());
  gate.wait_begun(1);
  ASSERT_TRUE(queue.submit(waits.job(2)).has_value());
  EXPECT_FALSE(queue.stop_within(1000));
  EXPECT_EQ(runs.code(), Code::kUnavailable);
  EXPECT_EQ(waits.code(), Code::kUnavailable);
  gate.open();
  EXPECT_TRUE(queue.stop_within(kPatience));
}

}  // namespace
}  // namespace bolide::server
