#include "engine/batch_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace bolide {
namespace {

struct Span {
  const std::byte* begin;
  size_t bytes;
};

// The memory of each array of a step.
std::vector<Span> spans(const BatchInputs& batch) {
  const auto T = static_cast<size_t>(batch.sizes[Symbol::kTokens]),
             S = static_cast<size_t>(batch.sizes[Symbol::kSequences]),
             R = static_cast<size_t>(batch.sizes[Symbol::kRows]);
  const auto span = [](const auto* array, size_t count) {
    return Span{reinterpret_cast<const std::byte*>(array), count * sizeof(*array)};
  };
  return {span(batch.counts, 3),
          span(batch.ids, T),
          span(batch.positions, T),
          span(batch.rows, R),
          span(batch.cu_tokens, S + 1),
          span(batch.context, S),
          span(batch.rope_length, S),
          span(batch.slots, T),
          span(batch.block_table, S * static_cast<size_t>(batch.block_table_stride)),
          span(batch.sampling.data(), R)};
}

std::vector<Span> spans(const BatchBlock::Arrays& a, const SymbolValues& sizes, int32_t stride) {
  BatchInputs batch;
  batch.ids = a.ids, batch.positions = a.positions, batch.rows = a.rows, batch.cu_tokens = a.cu_tokens;
  batch.context = a.context, batch.rope_length = a.rope_length, batch.block_table = a.block_table;
  batch.slots = a.slots, batch.counts = a.counts, batch.block_table_stride = stride, batch.sizes = sizes;
  batch.sampling = {a.sampling, static_cast<size_t>(sizes[Symbol::kRows])};
  return spans(batch);
}

// What the host writes is what kernels read, apart from each other, at the same place for the same sizes.
TEST(BatchBlock, KernelsReadWhatTheHostWrote) {
  std::mt19937 random(std::random_device{}());
  const auto device = make_cpu_device(1, std::nullopt);
  ASSERT_TRUE(device.has_value());
  auto stream = (*device)->make_stream();
  const BatchBlock::Room room{{{64, 8, 32}}, 5};
  for (const bool twin : {false, true}) {
    auto block = BatchBlock::make(**device, room, twin);
    ASSERT_TRUE(block.has_value()) << block.error().text;
    std::map<std::array<int64_t, kSymbols>, const int32_t*> places;
    for (int step = 0; step < 200; ++step) {
      SymbolValues sizes{{1 + static_cast<int64_t>(random() % 64), 1 + static_cast<int64_t>(random() % 8),
                          1 + static_cast<int64_t>(random() % 32)}};
      if (step % 3 == 0) sizes = {{4, 4, 4}};
      const auto arrays = block->begin(sizes);
      ASSERT_TRUE(arrays.has_value());
      const std::vector<Span> here = spans(*arrays, sizes, room.block_table_stride);
      std::vector<std::vector<std::byte>> written;
      for (const Span& span : here) {
        std::vector<std::byte> bytes(span.bytes);
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
        std::memcpy(const_cast<std::byte*>(span.begin), bytes.data(), bytes.size());
        written.push_back(std::move(bytes));
      }
      BatchInputs batch;
      ASSERT_TRUE(block->send(**stream, batch).has_value());
      ASSERT_EQ(batch.sizes, sizes);
      const std::vector<Span> there = spans(batch);
      for (size_t i = 0; i < there.size(); ++i) {
        ASSERT_EQ(reinterpret_cast<uintptr_t>(there[i].begin) % 64, 0u);
        ASSERT_EQ(there[i].bytes, written[i].size());
        ASSERT_TRUE(std::equal(written[i].begin(), written[i].end(), there[i].begin)) << i;
        EXPECT_EQ(twin, there[i].begin != here[i].begin);
      }
      const auto [place, fresh] = places.try_emplace(sizes.value, batch.ids);
      EXPECT_EQ(place->second, batch.ids);
    }
  }
}

TEST(BatchBlock, PaddingIsASequenceAToken) {
  const auto device = make_cpu_device(1, std::nullopt);
  auto block = BatchBlock::make(**device, {{{8, 8, 8}}, 3}, false);
  ASSERT_TRUE(block.has_value());
  const SymbolValues real{{5, 5, 5}}, padded{{8, 8, 8}};
  const auto arrays = block->begin(padded);
  ASSERT_TRUE(arrays.has_value());
  for (int i = 0; i < 8; ++i) {
    arrays->ids[i] = arrays->positions[i] = arrays->context[i] = arrays->rope_length[i] = 100 + i;
    arrays->slots[i] = 7, arrays->rows[i] = i, arrays->sampling[i].temperature = 1;
    arrays->sampling[i].repetition_penalty = 2;
  }
  std::fill_n(arrays->block_table, 24, 9);
  for (int i = 0; i <= 8; ++i) arrays->cu_tokens[i] = std::min(i, 5);
  pad(*arrays, real, padded, 3);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(arrays->cu_tokens[i + 1], i + 1);
    EXPECT_EQ(arrays->rows[i], i);
    EXPECT_EQ(arrays->slots[i], i < 5 ? 7 : -1);
    EXPECT_EQ(arrays->context[i], i < 5 ? 100 + i : 0);
    EXPECT_EQ(arrays->ids[i], i < 5 ? 100 + i : 0);
    EXPECT_EQ(arrays->sampling[i].needs_history(), i < 5);
    EXPECT_EQ(arrays->sampling[i].temperature, i < 5 ? 1 : 0);
    for (int b = 0; b < 3; ++b) EXPECT_EQ(arrays->block_table[3 * i + b], i < 5 ? 9 : 0);
  }
}

}  // namespace
}  // namespace bolide
