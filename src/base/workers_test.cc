#include "base/workers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/team_governor.h"

namespace bolide {
namespace {

constexpr int64_t kMs = 1'000'000;

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(Workers, RunsEveryChunkOnceAndPublishesPlainWrites) {
  std::mt19937 random(std::random_device{}());
  for (const int threads : {1, 2, 3, 5, 16}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (int round = 0; round < 300; ++round) {
      const int64_t chunks = random() % 70;
      std::vector<int> hits(chunks, 0);  // not atomic: chunks are distinct, and run publishes them
      std::vector<int64_t> sums(threads, 0);
      workers.run(chunks, [&](int64_t chunk, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        ++hits[chunk];
        sums[thread] += chunk;
      });
      for (const int hit : hits) ASSERT_EQ(hit, 1);
      ASSERT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), chunks * (chunks - 1) / 2);
    }
  }
}

TEST(Workers, SurvivesPausesOfEveryLengthBetweenRuns) {
  // Around the workers' spinning time, so that runs meet them spinning, falling asleep, asleep and waking.
  std::mt19937 random(std::random_device{}());
  Workers workers(4);
  for (int round = 0; round < 400; ++round) {
    std::atomic<int64_t> sum{0};
    workers.run(9, [&](int64_t chunk, int) { sum += chunk; });
    ASSERT_EQ(sum.load(), 36);
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
}

TEST(Workers, WhatABodyThrowsComesOutOfRun) {
  for (const int threads : {1, 2, 5}) {
    Workers workers(threads);
    for (int round = 0; round < 200; ++round) {
      // Whoever takes the chunk throws: the caller's own is the first, others are anybody's.
      const int64_t bad = round % 50;
      std::atomic<int> inside{0};
      const auto body = [&](int64_t chunk, int) {
        ++inside;
        if (chunk == bad) {
          --inside;
          throw std::bad_alloc();
        }
        --inside;
      };
      EXPECT_THROW(workers.run(50, body), std::bad_alloc);
      EXPECT_EQ(inside.load(), 0);
      std::atomic<int64_t> sum{0};
      workers.run(50, [&](int64_t chunk, int) { sum += chunk; });
      ASSERT_EQ(sum.load(), 49 * 25);
    }
    // All of them throw, from within a run inside of a run too.
    EXPECT_THROW(workers.run(20, [](int64_t, int) { throw std::length_error("too long"); }), std::length_error);
    EXPECT_THROW(workers.run(20, [&](int64_t, int) { workers.run(3, [](int64_t, int) { throw std::bad_alloc(); }); }),
                 std::bad_alloc);
    int64_t chunks = 0;
    workers.run(1, [&](int64_t, int) { ++chunks; });
    EXPECT_EQ(chunks, 1);
  }
}

TEST(Workers, UsesMoreThanOneThread) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor";
  Workers workers(2);
  std::atomic<int> by_worker{0};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (by_worker.load() == 0 && std::chrono::steady_clock::now() < until)
    workers.run(8, [&](int64_t, int thread) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
      while (std::chrono::steady_clock::now() < end) {
      }
      by_worker += thread != 0 ? 1 : 0;
    });
  EXPECT_GT(by_worker.load(), 0);
}

TEST(Workers, NestedRunsAreDoneInlineUnderTheSameThreadNumber) {
  Workers workers(3);
  std::atomic<int> inner{0};
  std::atomic<bool> same{true};
  for (int round = 0; round < 100; ++round)
    workers.run(6, [&](int64_t, int outer_thread) {
      const auto id = std::this_thread::get_id();
      workers.run(5, [&](int64_t, int thread) {
        if (thread != outer_thread || std::this_thread::get_id() != id) same = false;
        ++inner;
      });
    });
  EXPECT_TRUE(same.load());
  EXPECT_EQ(inner.load(), 100 * 6 * 5);
}

TEST(Workers, MayBeCalledFromOneThreadAfterAnotherAndFromAnotherPoolsBody) {
  Workers outer(2);
  Workers inner(2);
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    std::thread([&] { inner.run(7, [&](int64_t, int) { ++calls; }); }).join();
    outer.run(3, [&](int64_t chunk, int) {
      if (chunk == 0) inner.run(7, [&](int64_t, int) { ++calls; });
    });
  }
  EXPECT_EQ(calls.load(), 20 * 14);
}

TEST(Workers, IsMadeAndDestroyedManyTimes) {
  for (int round = 0; round < 200; ++round) {
    Workers workers(1 + round % 5);
    if (round % 3 == 0) continue;  // destroyed while the workers are still starting
    std::atomic<int> calls{0};
    workers.run(3, [&](int64_t, int) { ++calls; });
    ASSERT_EQ(calls.load(), 3);
  }
}

TEST(Workers, SleepersUseNoProcessorTime) {
  Workers workers(4);
  workers.run(16, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_cpu_seconds() - before, 0.02);
}

TEST(WorkersDeathTest, TwoCallersAtOnceAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Workers workers(2);
        std::atomic<bool> inside{false};
        std::thread other([&] {
          for (;;)
            workers.run(2, [&](int64_t, int) {
              inside = true;
              std::this_thread::sleep_for(std::chrono::milliseconds(5));
            });
        });
        while (!inside) std::this_thread::yield();
        for (;;) workers.run(2, [](int64_t, int) {});
      },
      "two threads call run");
}

TEST(TeamGovernor, ShrinksBacksOffAndGrowsBack) {
  TeamGovernor governor(2);
  int64_t now = 1000 * kMs;
  EXPECT_EQ(governor.team_at(now), 2);
  // A neighbour that never goes away: each try is starved after 10 ms.
  int64_t starved_ns = 0;
  const int64_t end = now + 2000 * kMs;
  while (now < end) {
    if (governor.team_at(now) == 2) {
      now += 10 * kMs;
      starved_ns += 10 * kMs;
      governor.shrink(now, 1);
      EXPECT_EQ(governor.team(), 1);
    }
    now += kMs / 10;
  }
  EXPECT_LT(starved_ns, 150 * kMs);
  // It goes away: back within the longest pause.
  const int64_t gone = now;
  while (governor.team_at(now) == 1) now += kMs / 10;
  EXPECT_LE(now - gone, TeamGovernor::kPauseMaxNs + kMs);
  // After a long good stretch a single disturbance costs only the shortest pause.
  now += 5000 * kMs;
  governor.shrink(now, 1);
  const int64_t disturbed = now;
  while (governor.team_at(now) == 1) now += kMs / 10;
  EXPECT_LE(now - disturbed, TeamGovernor::kPauseMinNs + kMs);
}

TEST(TeamGovernor, DropsOnlyTheStarvedAndNeverTheCaller) {
  TeamGovernor governor(8);
  governor.shrink(0, 1);
  EXPECT_EQ(governor.team(), 7);
  governor.shrink(0, 100);
  EXPECT_EQ(governor.team(), 1);
  int64_t now = 0;
  while (governor.team() < 8) governor.team_at(now += kMs);
  EXPECT_LT(now, 1000 * kMs);
}

}  // namespace
}  // namespace bolide
