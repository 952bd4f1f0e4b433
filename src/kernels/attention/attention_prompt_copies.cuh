// Attention of prompts, the warps that bring its operands into shared memory.
#pragma once

#include "kernels/attention/attention_prompt_items.cuh"

namespace bolide::cuda::prompt {

// The copying warp. Each lane brings one box of a tile: one panel of one page, or of kKeys tokens of it.
template <class C>
__device__ __forceinline__ void produce(const Arguments& a, const CUtensorMap* q_map, const CUtensorMap* k_map,
                                        const CUtensorMap* v_map, const unsigned char* shared_memory, uint32_t shared,
                                        const Barriers<C>& barriers) {
  constexpr int kBoxes = C::kF8 ? 1 : C::kPanels;                                       // of one page
  constexpr int kRowBytes = C::kF8 ? C::kDim : C::kSwizzle, kElement = C::kF8 ? 1 : 2;  // of a box; of the pools
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int slot = lane / kBoxes, panel = lane % kBoxes, slots = C::kKeys / a.box_tokens;
  const uint32_t box_at = static_cast<uint32_t>(panel * C::kTilePanel + slot * a.box_tokens * kRowBytes);
  const uint32_t query_bytes = static_cast<uint32_t>(a.tile_tokens * a.heads_per_kv * C::kDim * 2);
  Ring<C::kItems> items;
  Ring<C::kQueries> queries;
  Ring<C::kStages> keys, values;
  Ring<C::kRaws> raws;
  Item item;
  while (next_item<C>(a, shared_memory, barriers, items, item)) {
    if (item.begin >= item.end) continue;
    const int32_t* table = a.block_table + int64_t{item.sequence} * a.block_table_stride;
    // The row of the pools at which this lane's box of a tile begins; -1: beyond the context, there is no page.
    const auto row_of = [&](int tile) {
      const int position = tile * C::kKeys + slot * a.box_tokens;
      if (slot >= slots || position >= item.context) return -1;
      const int page = position / a.block_tokens;
      return (table[page] * a.kv_heads + item.head) * a.block_tokens + (position - page * a.block_tokens);
    };
    const auto load = [&](const CUtensorMap* map, int tile, int row, uint32_t to, uint32_t full) {
      const int left = item.context - tile * C::kKeys;
      const int live = min(slots, (left + a.box_tokens - 1) / a.box_tokens);
      if (lane == 0) barrier_expect(full, static_cast<uint32_t>(live * a.box_tokens * C::kDim * kElement));
      __syncwarp();
      if (row >= 0) copy_box(to + box_at, map, full, panel * C::kPanelDim, row);
    };
    const auto load_raw = [&](const CUtensorMap* map, int tile, int row) {
      await<true>(a, barriers.raws.empty(raws.stage), raws.parity ^ 1, kRawEmpty);
      load(map, tile, row, shared + C::kRawsAt + raws.stage * C::kRawBytes, barriers.raws.full(raws.stage));
      raws.next();
    };
    const auto load_keys = [&](int tile, int row) {
      if constexpr (C::kF8) return load_raw(k_map, tile, row);
      await<true>(a, barriers.keys.empty(keys.stage), keys.parity ^ 1, kKeyEmpty);
      load(k_map, tile, row, shared + C::kKeysAt + keys.stage * C::kTileBytes, barriers.keys.full(keys.stage));
      keys.next();
    };
    const auto load_values = [&](int tile, int row) {
      if constexpr (C::kF8) return load_raw(v_map, tile, row);
      await<true>(a, barriers.values.empty(values.stage), values.parity ^ 1, kValueEmpty);
      load(v_map, tile, row, shared + C::kValuesAt + values.stage * C::kTileBytes, barriers.values.full(values.stage));
      values.next();
    };

    int row = row_of(item.end - 1);
    await<true>(a, barriers.queries.empty(queries.stage), queries.parity ^ 1, kQueryEmpty);
    if (lane == 0) barrier_expect(barriers.queries.full(queries.stage), query_bytes);
    __syncwarp();
    if (lane < C::kPanels)
      copy_box(shared + queries.stage * C::kQueryBytes + lane * C::kQueryPanel, q_map,
               barriers.queries.full(queries.stage), lane * C::kPanelDim, item.head * a.heads_per_kv, item.row);
    queries.next();
    load_keys(item.end - 1, row);
    for (int tile = item.end - 2; tile >= item.begin; --tile) {
      const int next_row = row_of(tile);
      load_keys(tile, next_row);
      load_values(tile + 1, row);
      row = next_row;
    }
    load_values(item.begin, row);
  }
}

// Four f8e4m3 to two pairs of bf16: moved to where bf16 has exponent and mantissa, whose bias then is 120 too large. A
// product with 2^120 is exact, of subnormals too. 0x7f, which no cache has, becomes 480.
__device__ __forceinline__ uint2 widen_f8(uint32_t x) {
  const auto widen_pair = [](uint32_t high_bytes) {
    const uint32_t moved = (high_bytes & 0x80008000u) | (high_bytes >> 4 & 0x07f007f0u), factor = 0x7b807b80u;
    const __nv_bfloat162 product =
        __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&moved), *reinterpret_cast<const __nv_bfloat162*>(&factor));
    return *reinterpret_cast<const uint32_t*>(&product);
  };
  return {widen_pair(__byte_perm(x, 0, 0x1404)), widen_pair(__byte_perm(x, 0, 0x3424))};
}

// The warpgroup that makes tiles of bf16, swizzled as copies would have left them, of tiles of f8.
template <class C>
__device__ __forceinline__ void convert(const Arguments& a, unsigned char* shared_memory, const Barriers<C>& barriers) {
  constexpr int kPieces = C::kDim / 16;  // of a row, 16 elements each
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % kWarp;
  Ring<C::kItems> items;
  Ring<C::kStages> keys, values;
  Ring<C::kRaws> raws;
  const auto widen_tile = [&](Ring<C::kStages>& ring, const RingBarriers<C::kStages>& to, int at, int name) {
    await(a, barriers.raws.full(raws.stage), raws.parity, kRawFull);
    await(a, to.empty(ring.stage), ring.parity ^ 1, name);
    const unsigned char* raw = shared_memory + C::kRawsAt + raws.stage * C::kRawBytes;
    unsigned char* tile = shared_memory + at + ring.stage * C::kTileBytes;
#pragma unroll 2
    for (int i = thread; i < C::kKeys * kPieces; i += kWarpgroup) {
      const int row = i / kPieces, first = i % kPieces * 16, panel = first / C::kPanelDim;
      const uint4 x = *reinterpret_cast<const uint4*>(raw + i * 16);
      const uint2 w0 = widen_f8(x.x), w1 = widen_f8(x.y), w2 = widen_f8(x.z), w3 = widen_f8(x.w);
      const int flip = C::kSwizzle == 128 ? row % 8 : row / 2 % 4, unit = first % C::kPanelDim / 8;
      unsigned char* to_row = tile + panel * C::kTilePanel + row * C::kSwizzle;
      *reinterpret_cast<uint4*>(to_row + (unit ^ flip) * 16) = uint4{w0.x, w0.y, w1.x, w1.y};
      *reinterpret_cast<uint4*>(to_row + ((unit + 1) ^ flip) * 16) = uint4{w2.x, w2.y, w3.x, w3.y};
    }
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) barrier_arrive(barriers.raws.empty(raws.stage)), barrier_arrive(to.full(ring.stage));
    raws.next(), ring.next();
  };
  Item item;
  while (next_item<C>(a, shared_memory, barriers, items, item)) {
    if (item.begin >= item.end) continue;
    widen_tile(keys, barriers.keys, C::kKeysAt, kKeyEmpty);
    for (int tile = item.end - 2; tile >= item.begin; --tile) {
      widen_tile(keys, barriers.keys, C::kKeysAt, kKeyEmpty);
      widen_tile(values, barriers.values, C::kValuesAt, kValueEmpty);
    }
    widen_tile(values, barriers.values, C::kValuesAt, kValueEmpty);
  }
}

// Rows of `out` behind the last sequence get zeros: by the first warpgroup's last two warps.
__device__ __forceinline__ void clear_padding(const Arguments& a) {
  constexpr int kThreads = kWarpgroup / 2;
  const int width = a.dim * a.heads_per_kv * a.kv_heads;
  for (int t = a.cu_tokens[a.sequences] + static_cast<int>(blockIdx.x); t < a.tokens; t += static_cast<int>(gridDim.x))
    for (int i = (static_cast<int>(threadIdx.x) - kThreads) * 8; i < width; i += kThreads * 8)
      *reinterpret_cast<uint4*>(a.out + t * a.out_stride + i) = uint4{0, 0, 0, 0};
}

}  // namespace bolide::cuda::prompt
