// Attention of prompts, its work: how it is cut up, and how the parts of a block wait for each other.
#pragma once

#include "kernels/attention/hopper_sm90.cuh"
#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda::prompt {

template <int kDim_, int kStages_ = 2, int kConsumers_ = 2, bool kTurns_ = true, bool kSoftcap_ = false,
          int kQueries_ = 2, bool kF8_ = false>
struct Tactic {
  static constexpr bool kF8 = kF8_;  // pools are f8e4m3
  static constexpr int kDim = kDim_, kStages = kStages_, kConsumers = kConsumers_, kKeys = 128;
  static constexpr int kQueries = kQueries_, kItems = 4;
  static constexpr bool kTurns = kTurns_, kSoftcap = kSoftcap_;
  static constexpr int kRows = 64 * kConsumers, kThreads = kWarpgroup * (kConsumers + (kF8 ? 2 : 1));
  static_assert(kConsumers == 2 || (kConsumers == 3 && !kF8));
  static constexpr int kProducerRegisters = kF8 || kConsumers == 3 ? 32 : 40, kConverterRegisters = 48;
  static constexpr int kConsumerRegisters = kF8 ? 216 : kConsumers == 2 ? 232 : 160;
  // Panels: kSwizzle bytes of each row.
  static constexpr int kSwizzle = kDim % 64 == 0 ? 128 : 64;
  static constexpr int kPanelDim = kSwizzle / 2, kPanels = kDim / kPanelDim;
  static constexpr int kQueryBytes = kRows * kDim * 2, kTileBytes = kKeys * kDim * 2;
  static constexpr int kQueryPanel = kRows * kSwizzle, kTilePanel = kKeys * kSwizzle;
  // Shared memory, from an address that is a multiple of 1024.
  static constexpr int kKeysAt = kQueries * kQueryBytes, kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr int kRaws = kF8 ? 2 : 0, kRawBytes = kKeys * kDim;
  static constexpr int kRawsAt = kValuesAt + kStages * kTileBytes;
  static constexpr int kBarriersAt = kRawsAt + kRaws * kRawBytes;
  static constexpr int kItemsAt = kBarriersAt + 16 * (kItems + kQueries + 2 * kStages + kRaws);
  static constexpr int kSharedBytes = kItemsAt + 32 * kItems;
};

template <int kDim, bool kSoftcap>
using F8Tactic = Tactic<kDim, 2, 2, true, kSoftcap, 2, true>;

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
  kValueEmpty,
  kRawFull,
  kRawEmpty
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
  RingBarriers<C::kRaws> raws;

  __device__ __forceinline__ explicit Barriers(uint32_t shared)
      : items{shared + C::kBarriersAt},
        queries{items.base + 16 * C::kItems},
        keys{queries.base + 16 * C::kQueries},
        values{keys.base + 16 * C::kStages},
        raws{values.base + 16 * C::kStages} {}
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

}  // namespace bolide::cuda::prompt
