// Attention of prompts on sm_90a: out[t] = softmax(q[t] * transposed(k) * scale) * v over the cached tokens that token
// t sees, for ragged batches of chunks, k and v in pages.
//
// A work item is a tile of the query rows of one sequence and one kv head: kRows / (H / G) consecutive tokens times the
// H / G query heads that share its keys, so that keys are read once for all of them and a sequence of one token costs a
// tile a kv head. Keys are gone over in tiles of kKeys, from the last that the tile sees to the first. Blocks stay for
// several items, in order of falling length, there and back (no block gets two long ones).
//
// One warp copies (TMA: q once an item, pages of k and v into rings of kStages tiles); kConsumers warpgroups have 64
// rows each: scores by wgmma from shared memory, a running softmax in registers, weights as bf16 in registers times v.
// The scores of the next tile are computed beside the sums of this one, and the warpgroups take turns to start
// products, so that one's exponentials run beside the other's products.
//
// A tile of 128 rows, 128 keys, D = 128 is 8.4 Mflop over 64 KiB from L2, so 600 TFLOP/s is 4.7 TB/s of L2; 16384
// exponentials take half of the time of the products. Bound by tensor cores. After FlashAttention-3 (Shah et al. 2024,
// arXiv:2407.08608).
#include <cudaTypedefs.h>

#include <algorithm>

#include "kernels/attention/attention_cuda_parts.h"
#include "kernels/attention/hopper_sm90.cuh"
#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda {
namespace {

template <int kDim_, int kStages_ = 2, int kConsumers_ = 2, bool kTurns_ = true, bool kSoftcap_ = false,
          int kQueries_ = 2>
struct Tactic {
  static constexpr int kDim = kDim_, kStages = kStages_, kConsumers = kConsumers_, kKeys = 128;
  static constexpr int kQueries = kQueries_, kItems = 4;
  static constexpr bool kTurns = kTurns_, kSoftcap = kSoftcap_;
  static constexpr int kRows = 64 * kConsumers, kThreads = kWarpgroup * (kConsumers + 1);
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;
  // Panels: kSwizzle bytes of each row.
  static constexpr int kSwizzle = kDim % 64 == 0 ? 128 : 64;
  static constexpr int kPanelDim = kSwizzle / 2, kPanels = kDim / kPanelDim;
  static constexpr int kQueryBytes = kRows * kDim * 2, kTileBytes = kKeys * kDim * 2;
  static constexpr int kQueryPanel = kRows * kSwizzle, kTilePanel = kKeys * kSwizzle;
  // Shared memory, from an address that is a multiple of 1024.
  static constexpr int kKeysAt = kQueries * kQueryBytes, kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr int kBarriersAt = kValuesAt + kStages * kTileBytes;
  static constexpr int kItemsAt = kBarriersAt + 16 * (kItems + kQueries + 2 * kStages);
  static constexpr int kSharedBytes = kItemsAt + 32 * kItems;
};

template <int kDim>
using CappedTactic = Tactic<kDim, 2, 2, true, true>;

struct Arguments {
  const int32_t *cu_tokens, *context, *block_table;
  int block_table_stride, sequences, tokens;
  __nv_bfloat16* out;
  int64_t out_stride;
  int heads_per_kv, kv_heads, dim;
  int tile_tokens;               // tokens of an item: kRows / heads_per_kv
  int block_tokens, box_tokens;  // a page, and what of it one copy brings
  int window;                    // 0: none
  float scale_log2;              // scores to powers of two; with a softcap: of the capped ones
  float cap_in, cap_out;         // capped = cap_out * tanh(cap_in * product)
  int* report;                   // where a barrier that never comes is named; null: wait for ever
};

// A work item, as the planning warp hands it to the others.
struct alignas(16) Item {
  int sequence, head;  // head: of kv
  int row;             // of q and out, of the first token
  int tokens;          // 0: there is no further item
  int first_position;  // of the first token
  int begin, end;      // tiles of keys
  int context;         // of the sequence
};

// Waits for a phase; the warps of the first warpgroup not for ever if BOLIDE_ATTENTION_BOUNDED is defined, as a bench
// does: `name` is what a report then says. (More registers than the others can spare.)
template <bool kBounded = false>
__device__ __forceinline__ void await(const Arguments& a, uint32_t barrier, uint32_t parity, int name) {
#ifdef BOLIDE_ATTENTION_BOUNDED
  if constexpr (kBounded) {
    const long long start = clock64();
    while (!barrier_try(barrier, parity)) {
      if (clock64() - start < 4000000000ll) continue;
      a.report[1] = static_cast<int>(blockIdx.x), a.report[2] = static_cast<int>(threadIdx.x);
      a.report[3] = static_cast<int>(parity);
      __threadfence_system();
      a.report[0] = name;
      __threadfence_system();
      __trap();
    }
    return;
  }
#endif
  while (!barrier_try(barrier, parity)) {
  }
}

// A place in a ring of kStages.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

enum BarrierName {
  kNone,
  kItemFull,
  kItemEmpty,
  kQueryFull,
  kQueryEmpty,
  kKeyFull,
  kKeyEmpty,
  kValueFull,
  kValueEmpty
};

// A pair of barriers for each place of a ring.
template <int kStages>
struct RingBarriers {
  uint32_t base;
  __device__ __forceinline__ uint32_t full(int stage) const { return base + 16 * stage; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return base + 16 * stage + 8; }
  __device__ __forceinline__ void init(int fills, int leaves) const {
    for (int stage = 0; stage < kStages; ++stage) barrier_init(full(stage), fills), barrier_init(empty(stage), leaves);
  }
};

template <class C>
struct Barriers {
  RingBarriers<C::kItems> items;
  RingBarriers<C::kQueries> queries;
  RingBarriers<C::kStages> keys, values;

  __device__ __forceinline__ explicit Barriers(uint32_t shared)
      : items{shared + C::kBarriersAt},
        queries{items.base + 16 * C::kItems},
        keys{queries.base + 16 * C::kQueries},
        values{keys.base + 16 * C::kStages} {}
};

// Every thread of a warp gets the next item.
template <class C>
__device__ __forceinline__ bool next_item(const Arguments& a, const unsigned char* shared_memory,
                                          const Barriers<C>& barriers, Ring<C::kItems>& ring, Item& item) {
  await(a, barriers.items.full(ring.stage), ring.parity, kItemFull);
  item = reinterpret_cast<const Item*>(shared_memory + C::kItemsAt)[ring.stage];
  __syncwarp();
  if (threadIdx.x % kWarp == 0) barrier_arrive(barriers.items.empty(ring.stage));
  ring.next();
  return item.tokens > 0;
}

// The planning warp. Items of all sequences, longest first, are dealt to the blocks there and back; items of equal
// length are in order of sequence. A block finds its own among them by counting.
template <class C>
struct Planner {
  const Arguments& a;
  int lane;
  int length;        // of the items in hand, in tiles of keys
  int longer, same;  // how many items of a kv head are longer, and at least as long

  // Tiles of keys an item has at most; with a window all that have as many count as equal.
  __device__ __forceinline__ int longest() const {
    int most = 0;
    for (int s = lane; s < a.sequences; s += kWarp)
      if (a.cu_tokens[s + 1] > a.cu_tokens[s]) most = max(most, (a.context[s] + C::kKeys - 1) / C::kKeys);
    most = static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<unsigned>(most)));
    return a.window > 0 ? min(most, (a.window + a.tile_tokens) / C::kKeys + 2) : most;
  }
  // Items of a sequence that see at least so many tiles: its last ones.
  __device__ __forceinline__ int items_of(int sequence, int tiles) const {
    const int tokens = a.cu_tokens[sequence + 1] - a.cu_tokens[sequence], context = a.context[sequence];
    const int items = (tokens + a.tile_tokens - 1) / a.tile_tokens;
    if (tiles == 0) return items;
    const int needed = (tiles - 1) * C::kKeys + 1 - (context - tokens);  // the item's tokens must reach this one
    if (context == 0 || needed > tokens) return 0;
    return items - (max(needed, 1) + a.tile_tokens - 1) / a.tile_tokens + 1;
  }
  __device__ __forceinline__ int items_of_all(int tiles) const {
    int sum = 0;
    for (int s = lane; s < a.sequences; s += kWarp) sum += items_of(s, tiles);
    return __reduce_add_sync(0xffffffffu, sum);
  }

  // The index-th item of a kv head; indices ascend from call to call. False: there are not so many.
  __device__ __forceinline__ bool find(int index, int& sequence, int& item) {
    if (index >= same) {
      longer = same;
      int low = 0, high = length - 1;  // the largest length of which there are more than `index` at least as long
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (items_of_all(middle) > index) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      if (high < 0) return false;
      if (low + 1 < length) longer = items_of_all(low + 1);
      length = low, same = items_of_all(low);
      if (index >= same) return false;
    }
    int before = longer;
    for (int base = 0;; base += kWarp) {
      const int s = base + lane;
      const int above = s < a.sequences && longer > 0 ? items_of(s, length + 1) : 0;
      const int mine = s < a.sequences ? items_of(s, length) - above : 0;
      int sum = mine;
#pragma unroll
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
      }
      const unsigned reached = __ballot_sync(0xffffffffu, before + sum > index);
      if (reached != 0) {
        const int who = __ffs(static_cast<int>(reached)) - 1;
        const int skipped = above + index - (before + sum - mine);  // items behind the wanted one
        sequence = base + who;
        item = __shfl_sync(0xffffffffu, s < a.sequences ? items_of(s, 0) - 1 - skipped : 0, who);
        return true;
      }
      before += __shfl_sync(0xffffffffu, sum, kWarp - 1);
    }
  }
};

template <class C>
__device__ __forceinline__ void plan(const Arguments& a, unsigned char* shared_memory, const Barriers<C>& barriers) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  Planner<C> planner{a, lane, 0, 0, 0};
  if (a.sequences > 1) planner.length = planner.longest() + 1;
  Ring<C::kItems> ring;
  bool more = true;
  for (int n = 0; more; ++n) {
    const int index = n * blocks + (n % 2 == 0 ? block : blocks - 1 - block), rank = index / a.kv_heads;
    int sequence = 0, number;
    if (a.sequences == 1) {
      number = (a.cu_tokens[1] - a.cu_tokens[0] + a.tile_tokens - 1) / a.tile_tokens - 1 - rank;
      more = number >= 0;
    } else {
      more = planner.find(rank, sequence, number);
    }
    Item item{};
    if (more) {
      const int first = a.cu_tokens[sequence], tokens = a.cu_tokens[sequence + 1] - first;
      const int token = number * a.tile_tokens;
      item.sequence = sequence, item.head = index - rank * a.kv_heads, item.context = a.context[sequence];
      item.row = first + token, item.tokens = min(a.tile_tokens, tokens - token);
      item.first_position = item.context - tokens + token;
      item.end = item.context > 0 ? (item.first_position + item.tokens - 1) / C::kKeys + 1 : 0;
      const int first_key = item.first_position - a.window + 1;
      item.begin = a.window > 0 && first_key > 0 ? first_key / C::kKeys : 0;
    }
    await<true>(a, barriers.items.empty(ring.stage), ring.parity ^ 1, kItemEmpty);
    if (lane == 0) {
      reinterpret_cast<Item*>(shared_memory + C::kItemsAt)[ring.stage] = item;
      barrier_arrive(barriers.items.full(ring.stage));
    }
    __syncwarp();
    ring.next();
  }
}

// The copying warp. Each lane brings one box of a tile: one panel of one page, or of kKeys tokens of it.
template <class C>
__device__ __forceinline__ void produce(const Arguments& a, const CUtensorMap* q_map, const CUtensorMap* k_map,
                                        const CUtensorMap* v_map, const unsigned char* shared_memory, uint32_t shared,
                                        const Barriers<C>& barriers) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int slot = lane / C::kPanels, panel = lane % C::kPanels, slots = C::kKeys / a.box_tokens;
  const uint32_t box_at = static_cast<uint32_t>(panel * C::kTilePanel + slot * a.box_tokens * C::kSwizzle);
  const uint32_t query_bytes = static_cast<uint32_t>(a.tile_tokens * a.heads_per_kv * C::kDim * 2);
  Ring<C::kItems> items;
  Ring<C::kQueries> queries;
  Ring<C::kStages> keys, values;
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
      if (lane == 0) barrier_expect(full, static_cast<uint32_t>(live * a.box_tokens * C::kDim * 2));
      __syncwarp();
      if (row >= 0) copy_box(to + box_at, map, full, panel * C::kPanelDim, row);
    };
    const auto load_keys = [&](int tile, int row) {
      await<true>(a, barriers.keys.empty(keys.stage), keys.parity ^ 1, kKeyEmpty);
      load(k_map, tile, row, shared + C::kKeysAt + keys.stage * C::kTileBytes, barriers.keys.full(keys.stage));
      keys.next();
    };
    const auto load_values = [&](int tile, int row) {
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

// Rows of `out` behind the last sequence get zeros: by the first warpgroup's last two warps.
__device__ __forceinline__ void clear_padding(const Arguments& a) {
  constexpr int kThreads = kWarpgroup / 2;
  const int width = a.dim * a.heads_per_kv * a.kv_heads;
  for (int t = a.cu_tokens[a.sequences] + static_cast<int>(blockIdx.x); t < a.tokens; t += static_cast<int>(gridDim.x))
    for (int i = (static_cast<int>(threadIdx.x) - kThreads) * 8; i < width; i += kThreads * 8)
      *reinterpret_cast<uint4*>(a.out + t * a.out_stride + i) = uint4{0, 0, 0, 0};
}

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ __forceinline__ uint32_t pair_of(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Element (lane, i) of four lanes and four registers goes to (i, lane).
__device__ __forceinline__ void transpose_quad(uint32_t (&x)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const bool upper = (lane & bit) != 0;
      const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i | bit], bit);
      (upper ? x[i] : x[i | bit]) = got;
    }
}

// What a thread has of its two rows (h = 0, 1: eight apart): scores, sums, and the running softmax.
template <class C>
struct Rows {
  float sums[C::kDim / 2];
  float scores[C::kKeys / 2];
  uint32_t weights[C::kKeys / 4];
  float largest[2], total[2];

  // scores = q * transposed(k)
  __device__ __forceinline__ void multiply_keys(uint64_t q, uint64_t k) {
    settle(scores);
    products_begin();
#pragma unroll
    for (int step = 0; step < C::kDim / 16; ++step) {
      constexpr int kSteps = C::kPanelDim / 16;
      const int panel = step / kSteps, inside = step % kSteps * 32;
      product_shared(scores, q + static_cast<uint64_t>((panel * C::kQueryPanel + inside) / 16),
                     k + static_cast<uint64_t>((panel * C::kTilePanel + inside) / 16), step > 0 ? 1 : 0);
    }
    products_commit();
  }

  // sums += weights * v
  __device__ __forceinline__ void multiply_values(uint64_t v) {
    settle(sums), settle(weights);
    products_begin();
#pragma unroll
    for (int step = 0; step < C::kKeys / 16; ++step)
      product_registers(sums, weights + 4 * step, v + static_cast<uint64_t>(step * 16 * C::kSwizzle / 16));
    products_commit();
  }

  __device__ __forceinline__ void cap(const Arguments& a) {
#pragma unroll
    for (int i = 0; i < C::kKeys / 2; ++i) {
      // tanh(x) = 1 - 2 / (exp(2x) + 1); tanh.approx errs by 2^-11 of a score, which is too much for its exponential.
      const float e = power_of_two(scores[i] * a.cap_in * 2.885390082f);
      scores[i] = a.cap_out - __fdividef(2 * a.cap_out, e + 1);
    }
  }

  // Hides keys that a row does not see. position[h] - first key of the tile - this thread's first column.
  __device__ __forceinline__ void mask(const int (&last)[2], int window) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int first = window > 0 ? last[h] - window : -1 - C::kKeys;  // keys up to this one are out of the window
#pragma unroll
      for (int i = 0; i < C::kKeys / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[4 * i + 2 * h + e];
          const int key = 8 * i + e;
          score = key > last[h] || key <= first ? -INFINITY : score;
        }
    }
  }

  // Scores to weights, in place; factor[h] is by what earlier sums shrink.
  __device__ __forceinline__ void soften(float scale, float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = largest[h];
#pragma unroll
      for (int i = 0; i < C::kKeys / 8; ++i)
        most = fmaxf(most, fmaxf(scores[4 * i + 2 * h], scores[4 * i + 2 * h + 1]));
      most = quad_max(most);
      const float offset = most == -INFINITY ? 0.f : most * scale;  // nothing seen yet: all weights are 0
      factor[h] = power_of_two(fmaf(largest[h], scale, -offset));
      largest[h] = most;
      float even = 0, odd = 0;
#pragma unroll
      for (int i = 0; i < C::kKeys / 8; ++i) {
        float &x = scores[4 * i + 2 * h], &y = scores[4 * i + 2 * h + 1];
        x = power_of_two(fmaf(x, scale, -offset)), y = power_of_two(fmaf(y, scale, -offset));
        even += x, odd += y;
      }
      total[h] = fmaf(total[h], factor[h], even + odd);
    }
  }

  __device__ __forceinline__ void narrow_weights() {
#pragma unroll
    for (int i = 0; i < C::kKeys / 4; ++i) weights[i] = pair_of(scores[2 * i], scores[2 * i + 1]);
  }

  __device__ __forceinline__ void shrink(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) sums[i] *= factor[i / 2 % 2];
  }
};

// Rows [valid, kKeys) of a tile of values become zeros: weights there are 0, but memory may hold anything. By a
// warpgroup; others may do the same at the same time.
template <class C>
__device__ __forceinline__ void clear_values(unsigned char* tile, int valid, int barrier) {
  const int begin = valid * C::kSwizzle, thread = static_cast<int>(threadIdx.x) % kWarpgroup;
#pragma unroll
  for (int panel = 0; panel < C::kPanels; ++panel)
    for (int at = begin + thread * 16; at < C::kTilePanel; at += kWarpgroup * 16)
      *reinterpret_cast<uint4*>(tile + panel * C::kTilePanel + at) = uint4{0, 0, 0, 0};
  fence_async_proxy();
  meet(barrier, kWarpgroup);
}

template <class C>
__device__ __forceinline__ void consume(const Arguments& a, unsigned char* shared_memory, uint32_t shared,
                                        const Barriers<C>& barriers, int group) {
  constexpr int kTurn = 1, kAlone = kTurn + C::kConsumers;  // named barriers, one a warpgroup
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % kWarp;
  const int column = lane % 4 * 2;
  const int row = group * 64 + thread / kWarp * 16 + lane / 4;  // and 8 further on
  const auto queries_at = [&](int stage) {
    return panel_descriptor<C::kSwizzle>(shared + stage * C::kQueryBytes + group * 64 * C::kSwizzle, 16);
  };
  const auto keys_at = [&](int stage) {
    return panel_descriptor<C::kSwizzle>(shared + C::kKeysAt + stage * C::kTileBytes, 16);
  };
  const auto values_at = [&](int stage) {
    return panel_descriptor<C::kSwizzle>(shared + C::kValuesAt + stage * C::kTileBytes, C::kTilePanel);
  };
  const auto leave = [&](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  if (C::kTurns && group == C::kConsumers - 1) pass(kTurn, 2 * kWarpgroup);  // the first group starts

  Rows<C> rows;
  Ring<C::kItems> items;
  Ring<C::kQueries> queries;
  Ring<C::kStages> keys, values;
  Item item;
  while (next_item<C>(a, shared_memory, barriers, items, item)) {
    int token[2], head[2], position[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int mine = row + 8 * h;
      token[h] = mine / a.heads_per_kv, head[h] = item.head * a.heads_per_kv + mine % a.heads_per_kv;
      position[h] = item.first_position + token[h] - column;
    }
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) rows.sums[i] = 0;
    rows.largest[0] = rows.largest[1] = -INFINITY, rows.total[0] = rows.total[1] = 0;

    if (item.begin < item.end) {
      const auto hide = [&](int tile) {
        const int first = tile * C::kKeys;
        const int last[2] = {position[0] - first, position[1] - first};
        rows.mask(last, a.window);
      };
      float factor[2];
      await(a, barriers.queries.full(queries.stage), queries.parity, kQueryFull);
      const uint64_t q = queries_at(queries.stage);
      await(a, barriers.keys.full(keys.stage), keys.parity, kKeyFull);
      rows.multiply_keys(q, keys_at(keys.stage));
      products_wait<0>();
      settle(rows.scores);
      leave(barriers.keys.empty(keys.stage));
      if (item.end - 1 == item.begin) leave(barriers.queries.empty(queries.stage));
      keys.next();
      if (C::kSoftcap) rows.cap(a);
      hide(item.end - 1);
      rows.soften(a.scale_log2, factor);
      rows.narrow_weights();
      const int valid = item.context - (item.end - 1) * C::kKeys;
      if (valid < C::kKeys) {
        await(a, barriers.values.full(values.stage), values.parity, kValueFull);
        clear_values<C>(shared_memory + C::kValuesAt + values.stage * C::kTileBytes, valid, kAlone + group);
      }

      for (int tile = item.end - 2; tile >= item.begin; --tile) {
        await(a, barriers.keys.full(keys.stage), keys.parity, kKeyFull);
        if (C::kTurns) meet(kTurn + group, 2 * kWarpgroup);
        rows.multiply_keys(q, keys_at(keys.stage));
        await(a, barriers.values.full(values.stage), values.parity, kValueFull);
        rows.multiply_values(values_at(values.stage));
        if (C::kTurns) pass(kTurn + (group + 1) % C::kConsumers, 2 * kWarpgroup);
        products_wait<1>();
        settle(rows.scores);
        leave(barriers.keys.empty(keys.stage));
        if (tile == item.begin) leave(barriers.queries.empty(queries.stage));
        keys.next();
        if (C::kSoftcap) rows.cap(a);
        const int first_key = tile * C::kKeys;
        if (first_key + C::kKeys - 1 > item.first_position ||
            (a.window > 0 && first_key < item.first_position + item.tokens - a.window))
          hide(tile);
        rows.soften(a.scale_log2, factor);
        products_wait<0>();
        settle(rows.sums), settle(rows.weights);
        leave(barriers.values.empty(values.stage));
        values.next();
        rows.narrow_weights();
        rows.shrink(factor);
      }

      await(a, barriers.values.full(values.stage), values.parity, kValueFull);
      rows.multiply_values(values_at(values.stage));
      products_wait<0>();
      settle(rows.sums), settle(rows.weights);
      leave(barriers.values.empty(values.stage));
      values.next();
      queries.next();
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = quad_sum(rows.total[h]), inverse = total != 0 ? 1 / total : 0.f;
      __nv_bfloat16* to = a.out + (item.row + int64_t{token[h]}) * a.out_stride + head[h] * C::kDim + lane % 4 * 8;
#pragma unroll
      for (int i = 0; i < C::kDim / 32; ++i) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = 4 * (4 * i + j) + 2 * h;
          x[j] = pair_of(rows.sums[at] * inverse, rows.sums[at + 1] * inverse);
        }
        transpose_quad(x);
        if (token[h] < item.tokens) *reinterpret_cast<uint4*>(to + 32 * i) = uint4{x[0], x[1], x[2], x[3]};
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attention_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                     const __grid_constant__ CUtensorMap v_map, const __grid_constant__ Arguments a) {
  extern __shared__ unsigned char unaligned[];
  unsigned char* shared_memory = unaligned + (-shared_address(unaligned) & 1023);
  const uint32_t shared = shared_address(shared_memory);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarp, 0);
  const Barriers<C> barriers(shared);
  if (threadIdx.x == 0) {
    constexpr int kWarps = C::kConsumers * kWarpgroup / kWarp;
    barriers.items.init(1, 1 + kWarps);
    barriers.queries.init(1, kWarps);
    barriers.keys.init(1, kWarps);
    barriers.values.init(1, kWarps);
    barrier_init_done();
    prefetch_map(&q_map), prefetch_map(&k_map), prefetch_map(&v_map);
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (warp < kWarpgroup / kWarp) {
    give_registers<C::kProducerRegisters>();
    if (warp == 0) {
      produce<C>(a, &q_map, &k_map, &v_map, shared_memory, shared, barriers);
    } else if (warp == 1) {
      plan<C>(a, shared_memory, barriers);
    } else {
      clear_padding(a);
    }
  } else {
    take_registers<C::kConsumerRegisters>();
    consume<C>(a, shared_memory, shared, barriers, warp / (kWarpgroup / kWarp) - 1);
  }
}

// The driver's function that writes maps; the runtime finds it, so that nothing links the driver.
PFN_cuTensorMapEncodeTiled_v12000 find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess)
    return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// bf16, `rank` dimensions, the first contiguous; strides in elements of the others.
bool encode(CUtensorMap* map, const void* data, int rank, const uint64_t* sizes, const uint64_t* strides,
            const uint32_t* box, int swizzle) {
  static const PFN_cuTensorMapEncodeTiled_v12000 function = find_encode();
  if (function == nullptr) return false;
  uint64_t stride_bytes[2];
  for (int i = 0; i + 1 < rank; ++i) stride_bytes[i] = strides[i] * sizeof(__nv_bfloat16);
  const uint32_t steps[3] = {1, 1, 1};
  return function(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<uint32_t>(rank), const_cast<void*>(data), sizes,
                  stride_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  swizzle == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class C>
int launch_tactic(const CudaTarget& target, const AttentionWork& work, int* report = nullptr) {
  Arguments a{};
  a.cu_tokens = work.cu_tokens, a.context = work.context, a.block_table = work.block_table;
  a.block_table_stride = work.block_table_stride, a.sequences = work.sequences;
  a.tokens = static_cast<int>(work.q.rows);
  a.out = static_cast<__nv_bfloat16*>(work.out.data), a.out_stride = work.out.stride;
  a.heads_per_kv = work.heads / work.kv_heads, a.kv_heads = work.kv_heads, a.dim = work.head_dim;
  a.tile_tokens = C::kRows / a.heads_per_kv;
  a.block_tokens = work.block_tokens, a.box_tokens = work.block_tokens < C::kKeys ? work.block_tokens : C::kKeys;
  a.window = static_cast<int>(work.window < INT32_MAX ? work.window : 0);
  constexpr float kLog2E = 1.4426950408889634f;
  a.scale_log2 = C::kSoftcap ? 1.f : work.scale * kLog2E;
  a.cap_in = C::kSoftcap ? work.scale / work.softcap : 0.f, a.cap_out = work.softcap * kLog2E;
  a.report = report;

  const uint64_t dim = C::kDim, heads = static_cast<uint64_t>(work.heads);
  const uint64_t q_sizes[] = {dim, heads, static_cast<uint64_t>(work.q.rows)};
  const uint64_t q_strides[] = {dim, static_cast<uint64_t>(work.q.stride)};
  const uint32_t q_box[] = {C::kPanelDim, static_cast<uint32_t>(a.heads_per_kv), static_cast<uint32_t>(a.tile_tokens)};
  // How many rows a pool has is not known here; the block table stays inside.
  const uint64_t pool_sizes[] = {dim, INT32_MAX};
  const uint32_t pool_box[] = {C::kPanelDim, static_cast<uint32_t>(a.box_tokens)};
  CUtensorMap q_map, k_map, v_map;
  if (!encode(&q_map, work.q.data, 3, q_sizes, q_strides, q_box, C::kSwizzle) ||
      !encode(&k_map, work.k, 2, pool_sizes, &dim, pool_box, C::kSwizzle) ||
      !encode(&v_map, work.v, 2, pool_sizes, &dim, pool_box, C::kSwizzle))
    return cudaErrorNotSupported;

  constexpr size_t shared = 1024 + C::kSharedBytes;
  if (const cudaError_t status = cudaFuncSetAttribute(attention_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(shared));
      status != cudaSuccess)
    return status;
  const int64_t items = (work.q.rows / a.tile_tokens + work.sequences) * work.kv_heads;
  const int64_t grid = std::clamp<int64_t>(items, 1, target.multiprocessors);
  return launch(target, attention_kernel<C>, dim3(static_cast<unsigned>(grid)), C::kThreads, shared, q_map, k_map,
                v_map, a);
}

}  // namespace

int attention_prompt(const CudaTarget& target, const AttentionWork& work) {
  const bool capped = work.softcap > 0;
  switch (work.head_dim) {
    case 64: return capped ? launch_tactic<CappedTactic<64>>(target, work) : launch_tactic<Tactic<64>>(target, work);
    case 96: return capped ? launch_tactic<CappedTactic<96>>(target, work) : launch_tactic<Tactic<96>>(target, work);
    case 128: return capped ? launch_tactic<CappedTactic<128>>(target, work) : launch_tactic<Tactic<128>>(target, work);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bolide::cuda
