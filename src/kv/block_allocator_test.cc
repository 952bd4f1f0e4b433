#include "kv/block_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "kv/kv_cache.h"

namespace bolide {
namespace {

// Random takes, shares and gives beside a plain count of references.
TEST(BlockAllocator, AgreesWithAModel) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const auto blocks = static_cast<int32_t>(1 + random() % 40);
    BlockAllocator allocator(blocks);
    std::map<BlockId, int> references;
    for (int i = 0; i < 2000; ++i) {
      const auto pick = [&] {
        return std::next(references.begin(), static_cast<ptrdiff_t>(random() % references.size()));
      };
      switch (random() % 3) {
        case 0: {
          auto block = allocator.take();
          ASSERT_EQ(block.has_value(), references.size() < static_cast<size_t>(blocks));
          if (!block) {
            EXPECT_EQ(block.error().code, Code::kOutOfMemory);
            EXPECT_NE(block.error().text.find(std::to_string(blocks)), std::string::npos);
            break;
          }
          ASSERT_TRUE(*block >= 0 && *block < blocks);
          ASSERT_TRUE(references.emplace(*block, 1).second) << "block " << *block << " was handed out twice";
          break;
        }
        case 1:
          if (references.empty()) break;
          if (auto it = pick(); it != references.end()) allocator.share(it->first), ++it->second;
          break;
        default:
          if (references.empty()) break;
          if (auto it = pick(); it != references.end()) {
            allocator.give(it->first);
            if (--it->second == 0) references.erase(it);
          }
      }
      ASSERT_EQ(allocator.free_count(), blocks - static_cast<int32_t>(references.size()));
      allocator.check_integrity();
    }
    while (!references.empty()) {
      allocator.give(references.begin()->first);
      if (--references.begin()->second == 0) references.erase(references.begin());
    }
    EXPECT_EQ(allocator.free_count(), blocks);
  }
}

TEST(BlockAllocatorDeathTest, AFreeBlockIsNeitherSharedNorGiven) {
  BlockAllocator allocator(2);
  EXPECT_DEATH(allocator.give(0), "block 0 is free");
  EXPECT_DEATH(allocator.share(1), "block 1 is free");
}

std::unique_ptr<Device> cpu() {
  auto device = make_cpu_device(1, std::nullopt);
  EXPECT_TRUE(device.has_value());
  return std::move(*device);
}

TEST(KvCache, PoolsOfAllLayersAreApartAndFillTheMemory) {
  const auto device = cpu();
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const KvLayout layout{3, 2, 8, 16, dtype, 5};
    auto cache = KvCache::make(layout, *device);
    ASSERT_TRUE(cache.has_value()) << cache.error().text;
    const size_t pool = static_cast<size_t>(2 * 8 * 16 * 5) * (dtype == DType::kF32 ? 4 : 2);
    EXPECT_EQ(cache->bytes(), 6 * pool);
    std::set<const std::byte*> starts;
    for (const auto& layer : cache->layers()) starts.insert({layer.k, layer.v});
    ASSERT_EQ(starts.size(), 6u);
    EXPECT_EQ(static_cast<size_t>(*starts.rbegin() - *starts.begin()), 5 * pool);
    const std::byte* before = nullptr;
    for (const std::byte* start : starts) {
      if (before != nullptr) {
        EXPECT_EQ(static_cast<size_t>(start - before), pool);
      }
      before = start;
    }
    EXPECT_EQ(cache->allocator().block_count(), 5);
  }
}

TEST(KvCache, RefusesWhatCannotBe) {
  const auto device = cpu();
  constexpr int32_t kMost = INT32_MAX;
  for (const KvLayout& layout :
       {KvLayout{kMost, kMost, kMost, 16, DType::kF32, kMost}, KvLayout{0, 2, 8, 16, DType::kF32, 5},
        KvLayout{2, 2, 8, 16, DType::kF32, 0}, KvLayout{2, 2, -8, 16, DType::kF32, 5}}) {
    const auto cache = KvCache::make(layout, *device);
    ASSERT_FALSE(cache.has_value());
    EXPECT_NE(cache.error().text.find("--context"), std::string::npos) << cache.error().text;
  }
  // 64 bits hold it, this machine does not: the error says how much and what would need less.
  const auto cache = KvCache::make({64, 32, 128, 16, DType::kF32, 1 << 26}, *device);
  ASSERT_FALSE(cache.has_value());
  EXPECT_EQ(cache.error().code, Code::kOutOfMemory);
  for (const char* part : {"1073741824 tokens", "--context", "--kv-type", "MB available"})
    EXPECT_NE(cache.error().text.find(part), std::string::npos) << cache.error().text;
}

}  // namespace
}  // namespace bolide
