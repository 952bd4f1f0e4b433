#include "engine/batch_block.h"

#include <algorithm>

namespace bolide {
namespace {

constexpr uint64_t kAlignment = 64;

// Offsets of a step's arrays; `bytes` is where the last one ends.
struct Layout {
  uint64_t ids, positions, rows, cu_tokens, context, rope_length, counts, slots, sampling, block_table;
  uint64_t bytes = 0;

  Layout(const SymbolValues& sizes, int32_t stride) {
    const auto T = static_cast<uint64_t>(sizes[Symbol::kTokens]), S = static_cast<uint64_t>(sizes[Symbol::kSequences]),
               R = static_cast<uint64_t>(sizes[Symbol::kRows]);
    const auto place = [&](uint64_t count, uint64_t element) {
      const uint64_t offset = bytes;
      bytes += round_up(count * element, kAlignment);
      return offset;
    };
    counts = place(kSymbols, sizeof(int32_t));
    ids = place(T, sizeof(int32_t));
    positions = place(T, sizeof(int32_t));
    rows = place(R, sizeof(int32_t));
    cu_tokens = place(S + 1, sizeof(int32_t));
    context = place(S, sizeof(int32_t));
    rope_length = place(S, sizeof(int32_t));
    slots = place(T, sizeof(int64_t));
    sampling = place(R, sizeof(SamplingRow));
    block_table = place(S * static_cast<uint64_t>(stride), sizeof(int32_t));
  }
};

BatchBlock::Arrays arrays_at(std::byte* base, const Layout& layout) {
  const auto at = [&]<class T>(T* /*type*/, uint64_t offset) { return reinterpret_cast<T*>(base + offset); };
  constexpr int32_t* kInt = nullptr;
  return {at(kInt, layout.ids),
          at(kInt, layout.positions),
          at(kInt, layout.rows),
          at(kInt, layout.cu_tokens),
          at(kInt, layout.context),
          at(kInt, layout.rope_length),
          at(kInt, layout.block_table),
          at(kInt, layout.counts),
          at(static_cast<int64_t*>(nullptr), layout.slots),
          at(static_cast<SamplingRow*>(nullptr), layout.sampling)};
}

}  // namespace

Result<BatchBlock> BatchBlock::make(Device& device, const Room& room, bool twin) {
  BatchBlock block;
  block.room_ = room;
  block.twin_ = twin;
  const uint64_t bytes = Layout(room.sizes, room.block_table_stride).bytes;
  for (Half& half : block.halves_) {
    BOLIDE_TRY(half.memory, device.allocate(bytes, Memory::kPinned).context("the arrays of a step"));
    if (!twin) return block;
    BOLIDE_TRY(half.copied, device.make_event());
  }
  BOLIDE_TRY(block.twin_memory_, device.allocate(bytes, Memory::kDevice).context("the arrays of a step"));
  return block;
}

Result<BatchBlock::Arrays> BatchBlock::begin(const SymbolValues& sizes) {
  for (size_t i = 0; i < kSymbols; ++i)
    BOLIDE_CHECK(sizes.value[i] <= room_.sizes.value[i], "a step of {} {}, room for {}", sizes.value[i],
                 to_string(static_cast<Symbol>(i)), room_.sizes.value[i]);
  sizes_ = sizes;
  if (twin_) {
    now_ = 1 - now_;
    BOLIDE_TRY(halves_[now_].copied->synchronize());
  }
  return arrays_at(halves_[now_].memory.data(), Layout(sizes, room_.block_table_stride));
}

Result<> BatchBlock::send(Stream& stream, BatchInputs& batch) {
  const Layout layout(sizes_, room_.block_table_stride);
  const Half& half = halves_[now_];
  if (twin_) {
    BOLIDE_TRY(copy_bytes(stream, twin_memory_.bytes().first(layout.bytes), half.memory.bytes().first(layout.bytes)));
    BOLIDE_TRY(stream.record(*half.copied));
  }
  const Arrays arrays = arrays_at(twin_ ? twin_memory_.data() : half.memory.data(), layout);
  batch.ids = arrays.ids;
  batch.positions = arrays.positions;
  batch.rows = arrays.rows;
  batch.cu_tokens = arrays.cu_tokens;
  batch.context = arrays.context;
  batch.rope_length = arrays.rope_length;
  batch.block_table = arrays.block_table;
  batch.counts = arrays.counts;
  batch.slots = arrays.slots;
  batch.sampling = {arrays.sampling, static_cast<size_t>(sizes_[Symbol::kRows])};
  batch.block_table_stride = room_.block_table_stride;
  batch.sizes = sizes_;
  return {};
}

void pad(const BatchBlock::Arrays& arrays, const SymbolValues& real, const SymbolValues& padded,
         int32_t block_table_stride) {
  const int64_t more = padded[Symbol::kTokens] - real[Symbol::kTokens];
  BOLIDE_CHECK(more >= 0 && padded[Symbol::kSequences] - real[Symbol::kSequences] == more &&
                   padded[Symbol::kRows] - real[Symbol::kRows] == more,
               "padding {} tokens to {}", real[Symbol::kTokens], padded[Symbol::kTokens]);
  for (int64_t i = 0; i < more; ++i) {
    const int64_t t = real[Symbol::kTokens] + i, s = real[Symbol::kSequences] + i, r = real[Symbol::kRows] + i;
    arrays.ids[t] = 0;
    arrays.positions[t] = 0;
    arrays.slots[t] = -1;
    arrays.cu_tokens[s + 1] = arrays.cu_tokens[s] + 1;
    arrays.context[s] = 0;
    arrays.rope_length[s] = 0;
    std::fill_n(arrays.block_table + s * block_table_stride, block_table_stride, 0);
    arrays.rows[r] = static_cast<int32_t>(t);
    arrays.sampling[r] = SamplingRow();
  }
}

}  // namespace bolide
