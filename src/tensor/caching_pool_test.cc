#include "tensor/caching_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "base/memory.h"
#include "base/sanitizers.h"

namespace bolide {
namespace {

TEST(CachingPool, TensorsKeepWhatTheyHold) {
  std::mt19937 random(std::random_device{}());
  CachingPool pool;
  struct Held {
    std::shared_ptr<std::byte> data;
    size_t bytes;
    int value;
  };
  std::vector<Held> held;
  for (int round = 0; round < 3000; ++round) {
    if (!held.empty() && random() % 2 == 0) {
      const size_t i = random() % held.size();
      for (size_t k = 0; k < held[i].bytes; k += 61)
        ASSERT_EQ(held[i].data.get()[k], static_cast<std::byte>(held[i].value));
      held.erase(held.begin() + static_cast<int64_t>(i));
      continue;
    }
    const size_t bytes = random() % (size_t{1} << (random() % 21));
    auto taken = pool.take(bytes);
    ASSERT_TRUE(taken) << taken.error().text;
    ASSERT_EQ(reinterpret_cast<uintptr_t>(taken->get()) % 64, 0u);
    const int value = static_cast<int>(random() % 255);
    std::memset(taken->get(), value, bytes);
    held.push_back({*taken, bytes, value});
  }
  EXPECT_GT(pool.bytes_in_use(), 0u);
  held.clear();
  EXPECT_EQ(pool.bytes_in_use(), 0u);
  EXPECT_LE(pool.bytes_kept(), pool.bytes_in_use_max() * 5 / 4 + (8u << 20));
}

TEST(CachingPool, TheSameRunAsksTheSystemOnce) {
  CachingPool pool;
  int64_t before = 0;
  for (int run = 0; run < 5; ++run) {
    if (run > 0) {
      EXPECT_EQ(pool.fresh().count, before);
    }
    std::shared_ptr<std::byte> last;
    for (const size_t bytes : {3u << 20, 800u << 10, 5u << 20, 12u << 20, 100u, 3u << 20})
      last = *pool.take(bytes);  // the one before is dropped behind it
    before = pool.fresh().count;
  }
}

TEST(CachingPool, NothingIsKeptIfNothingShallBe) {
  CachingPool pool(false);
  {
    const auto a = *pool.take(1 << 20), b = *pool.take(30 << 20);
    EXPECT_GE(pool.bytes_in_use(), size_t{31} << 20);
  }
  EXPECT_EQ(pool.bytes_kept(), 0u);
}

TEST(CachingPool, TensorsMayOutliveIt) {
  std::shared_ptr<std::byte> data;
  {
    CachingPool pool;
    data = *pool.take(5 << 20);
  }
  std::memset(data.get(), 1, 5 << 20);
}

TEST(CachingPool, ManyThreads) {
  CachingPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&pool, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        const size_t bytes = 1 + random() % 100000;
        const auto data = *pool.take(bytes);
        data.get()[bytes - 1] = data.get()[0] = std::byte{1};
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.bytes_in_use(), 0u);
}

TEST(CachingPool, AbsurdSizesAreRefused) {
  CachingPool pool;
  EXPECT_FALSE(pool.take(SIZE_MAX));
  EXPECT_FALSE(pool.take(SIZE_MAX / 4));
}

TEST(CachingPool, WhatIsBeyondTheLimitIsRefused) {
  CachingPool pool;
  pool.set_limit(64 << 20);
  EXPECT_FALSE(pool.take(65 << 20));
  auto first = pool.take(40 << 20);
  ASSERT_TRUE(first) << first.error().text;
  const auto second = pool.take(40 << 20);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kOutOfMemory);
  EXPECT_NE(second.error().text.find("beyond the limit of 64.00 MiB, of which 40.00 MiB are in use"), std::string::npos)
      << second.error().text;
  // What is kept of former runs gives way.
  first->reset();
  EXPECT_TRUE(pool.take(60 << 20));
}

TEST(CachingPool, WhatTheSystemHasNotIsRefused) {
#if BOLIDE_ADDRESS_SANITIZER || BOLIDE_THREAD_SANITIZER
  GTEST_SKIP() << "sanitizers touch what is only reserved";
#endif
  const size_t available = available_memory_bytes();
  if (available >= Tensor::kBytesMax / 4) GTEST_SKIP() << "this machine has too much memory, or does not say";
  for (TensorPool* pool : {&heap_pool(), &packed_pool()}) {
    const auto refused = pool->take(2 * available);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
    EXPECT_NE(refused.error().text.find("are available"), std::string::npos) << refused.error().text;
  }
  // The system counts as available what is reserved and was never written.
  CachingPool pool;
  auto first = pool.take(available / 8 * 5);
  if (!first) GTEST_SKIP() << "others take memory: " << first.error().text;
  EXPECT_FALSE(pool.take(available / 8 * 5));
  const auto named = Tensor::make(DType::kF32, {7, static_cast<int64_t>(available)}, pool);
  ASSERT_FALSE(named);
  EXPECT_TRUE(named.error().text.starts_with("f32[7, ")) << named.error().text;
}

}  // namespace
}  // namespace bolide
