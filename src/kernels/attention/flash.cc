// How the work of a launch is cut up. A unit is one tile of query rows (some tokens of one sequence, times the query
// heads of one kv head) against all positions it sees. Positions are gone over in splits of 256; the state of each
// split starts afresh and is merged into the unit's in ascending order. So the same arithmetic results whether a thread
// does all splits of a unit (many units), or splits are spread over the threads (few units, long contexts).
#include "kernels/attention/flash.h"

#include <cstring>

#include "kernels/attention/attention_parts.h"
#include "kernels/common/launch.h"

namespace bolide::attention {
namespace {

using isa::AttentionScratch;
using isa::AttentionState;
using isa::AttentionTask;
using isa::kColumnStep;
using isa::kKeyTile;

constexpr int64_t kSplit = 256;      // positions; a multiple of kKeyTile
constexpr int64_t kRowsWanted = 48;  // 8 register tiles: packing a tile of keys costs a twentieth of using it
// Multiply-adds of a launch below which waking threads costs more than it saves.
constexpr int64_t kInlineWork = int64_t{1} << 17;

// Takes aligned pieces off a workspace; without one (nullptr) it only counts.
class Carver {
 public:
  explicit Carver(std::byte* at) : at_(at) {}
  template <class T>
  T* take(int64_t count) {
    auto* piece = at_ == nullptr ? nullptr : reinterpret_cast<T*>(at_ + used_);
    used_ += round_up(static_cast<size_t>(count) * sizeof(T), 64);
    return piece;
  }
  size_t used() const { return used_; }

 private:
  std::byte* at_;
  size_t used_ = 0;
};

struct Dims {
  int64_t heads_per_kv, tokens_per_tile, rows_max, head_dim, padded_dim;

  explicit Dims(const PagedAttention& op)
      : heads_per_kv(op.heads / op.kv_heads),
        tokens_per_tile(std::max<int64_t>(1, kRowsWanted / heads_per_kv)),
        rows_max(tokens_per_tile * heads_per_kv),
        head_dim(op.head_dim),
        padded_dim((op.head_dim + kColumnStep - 1) / kColumnStep * kColumnStep) {}

  AttentionState state(Carver& carver, int64_t rows) const {
    return {carver.take<float>(rows), carver.take<float>(rows * kColumnStep), carver.take<float>(rows * padded_dim)};
  }
  size_t state_bytes(int64_t rows) const {
    Carver carver(nullptr);
    state(carver, rows);
    return carver.used();
  }
};

// What one thread needs.
struct ThreadScratch {
  float* q;
  int64_t *first, *last;
  AttentionScratch tile;
  AttentionState total, part;

  ThreadScratch(Carver& carver, const Dims& dims)
      : q(carver.take<float>(dims.rows_max * dims.head_dim)),
        first(carver.take<int64_t>(dims.rows_max)),
        last(carver.take<int64_t>(dims.rows_max)),
        tile{carver.take<float>(dims.rows_max * kKeyTile), carver.take<float>(dims.head_dim * kKeyTile),
             carver.take<float>(kKeyTile * dims.padded_dim), carver.take<int64_t>(2 * kKeyTile)},
        total(dims.state(carver, dims.rows_max)),
        part(dims.state(carver, dims.rows_max)) {}
};

size_t thread_bytes(const Dims& dims) {
  Carver carver(nullptr);
  const ThreadScratch scratch(carver, dims);
  return carver.used();
}

// Units of a launch up to which splits are spread over threads.
int64_t spread_units_max(int64_t threads) { return 4 * threads; }
int64_t parts_max(int64_t threads) { return 16 * threads; }

struct Unit {
  int64_t sequence, kv_head;
  int64_t token, tokens;  // of the batch
  int64_t position;       // of the first token
  int64_t split_begin, split_end;
};

// One split of one unit, when splits are spread over threads.
struct SplitTask {
  int64_t unit, split;
};

class Flash {
 public:
  Flash(const isa::AttentionFunctions& functions, const PagedAttention& op, const Launch& launch)
      : functions_(functions),
        op_(op),
        dims_(op),
        launch_(launch),
        batch_(*launch.batch),
        thread_bytes_(bolide::attention::thread_bytes(dims_)) {}

  static size_t bytes(const Dims& dims, int64_t threads, int64_t sequences) {
    Carver carver(nullptr);
    carver.take<int64_t>(sequences + 1);
    carver.take<SplitTask>(parts_max(threads));
    carver.take<std::byte>(static_cast<int64_t>(bolide::attention::thread_bytes(dims)) * threads);
    carver.take<std::byte>(static_cast<int64_t>(dims.state_bytes(dims.rows_max)) *
                           (spread_units_max(threads) + parts_max(threads)));
    return carver.used();
  }

  // `threads`: for how many the workspace was made.
  void run(Workers& workers, int64_t threads) {
    const int64_t sequences = batch_.sizes[Symbol::kSequences];
    Carver carver(launch_.workspace.data());
    threads_ = threads;
    units_before_ = carver.take<int64_t>(sequences + 1);
    split_tasks_ = carver.take<SplitTask>(parts_max(threads));
    scratch_ = carver.take<std::byte>(static_cast<int64_t>(thread_bytes_) * threads);
    units_before_[0] = 0;
    int64_t work = 0, seen_most = 0, tokens_most = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t tokens = batch_.cu_tokens[s + 1] - batch_.cu_tokens[s];
      const int64_t tiles = (tokens + dims_.tokens_per_tile - 1) / dims_.tokens_per_tile;
      units_before_[s + 1] = units_before_[s] + tiles * op_.kv_heads;
      const int64_t context = batch_.context[s];
      const int64_t seen = op_.window > 0 ? std::min<int64_t>(context, op_.window + tokens) : context;
      work += tokens * seen * op_.heads * op_.head_dim;
      seen_most = std::max(seen_most, seen);
      tokens_most = std::max(tokens_most, tokens);
    }
    const int64_t units = units_before_[sequences];
    if (work < kInlineWork || workers.threads() == 1) {
      for (int64_t u = 0; u < units; ++u) whole_unit(u, 0);
    } else if (units >= spread_units_max(threads) || seen_most <= kSplit) {
      spread(workers, units, [&](int64_t u, int slot) { whole_unit(u, slot); });
    } else {
      const int64_t rows = std::min(tokens_most, dims_.tokens_per_tile) * dims_.heads_per_kv;
      run_splits(workers, units, rows, carver);
    }
  }

 private:
  // body(i, slot) for i in [0, count) on the pool; no two at once with the same slot, all slots below threads_.
  void spread(Workers& workers, int64_t count, FunctionRef<void(int64_t, int)> body) {
    if (workers.threads() <= threads_) return workers.run(count, body);
    workers.run(threads_, [&](int64_t slot, int) {
      for (int64_t i = slot; i < count; i += threads_) body(i, static_cast<int>(slot));
    });
  }

  ThreadScratch scratch(int slot) const {
    Carver carver(scratch_ + static_cast<size_t>(slot) * thread_bytes_);
    return ThreadScratch(carver, dims_);
  }

  Unit unit(int64_t index) const {
    const int64_t sequences = batch_.sizes[Symbol::kSequences];
    const int64_t s = std::upper_bound(units_before_, units_before_ + sequences + 1, index) - units_before_ - 1;
    const int64_t begin = batch_.cu_tokens[s], count = batch_.cu_tokens[s + 1] - begin;
    const int64_t tiles = (units_before_[s + 1] - units_before_[s]) / op_.kv_heads, local = index - units_before_[s];
    // Last tiles first: they see most positions.
    const int64_t tile = tiles - 1 - local / op_.kv_heads;
    Unit u{.sequence = s, .kv_head = local % op_.kv_heads, .token = begin + tile * dims_.tokens_per_tile};
    u.tokens = std::min(dims_.tokens_per_tile, begin + count - u.token);
    u.position = batch_.context[s] - count + (u.token - begin);
    u.split_begin = first_seen(u.position) / kSplit;
    u.split_end = (u.position + u.tokens - 1) / kSplit + 1;
    return u;
  }

  int64_t first_seen(int64_t position) const {
    return op_.window > 0 ? std::max<int64_t>(0, position + 1 - op_.window) : 0;
  }

  // The task of a unit but for its positions; query rows are gathered: row (token, head of the group).
  AttentionTask task(const Unit& u, const ThreadScratch& scratch) const {
    const int64_t group = dims_.heads_per_kv, dim = dims_.head_dim;
    for (int64_t t = 0; t < u.tokens; ++t) {
      std::memcpy(scratch.q + t * group * dim, launch_.in[0].row<float>(u.token + t) + u.kv_head * group * dim,
                  static_cast<size_t>(group * dim) * sizeof(float));
      for (int64_t r = t * group; r < (t + 1) * group; ++r) {
        scratch.first[r] = first_seen(u.position + t);
        scratch.last[r] = u.position + t + 1;
      }
    }
    const KvLayer& layer = batch_.kv.layers[static_cast<size_t>(op_.layer)];
    return {.q = scratch.q,
            .rows = u.tokens * group,
            .head_dim = dim,
            .padded_dim = dims_.padded_dim,
            .first = scratch.first,
            .last = scratch.last,
            .blocks = batch_.block_table + u.sequence * batch_.block_table_stride,
            .block_tokens = batch_.kv.block_tokens,
            .block_stride = batch_.kv.block_stride(),
            .head_offset = u.kv_head * batch_.kv.block_tokens * dim,
            .k = layer.k,
            .v = layer.v,
            .bf16 = batch_.kv.dtype == DType::kBF16,
            .scale = op_.scale,
            .softcap = op_.softcap,
            .scratch = scratch.tile};
  }

  void attend_split(AttentionTask& task, const Unit& u, int64_t split, const AttentionState& state) const {
    task.begin = std::max(split * kSplit, first_seen(u.position) / kKeyTile * kKeyTile);
    task.end = std::min((split + 1) * kSplit, u.position + u.tokens);
    task.next_end = u.position + u.tokens;
    functions_.attend(task, state);
  }

  void finish(const Unit& u, const AttentionState& state) const {
    const int64_t group = dims_.heads_per_kv, dim = dims_.head_dim;
    for (int64_t t = 0; t < u.tokens; ++t)
      for (int64_t h = 0; h < group; ++h)
        functions_.finish(state, t * group + h, dim, dims_.padded_dim,
                          launch_.out[0].row<float>(u.token + t) + (u.kv_head * group + h) * dim);
  }

  void whole_unit(int64_t index, int slot) const {
    const Unit u = unit(index);
    const ThreadScratch scratch = this->scratch(slot);
    AttentionTask t = task(u, scratch);
    attend_split(t, u, u.split_begin, scratch.total);
    for (int64_t split = u.split_begin + 1; split < u.split_end; ++split) {
      attend_split(t, u, split, scratch.part);
      functions_.merge(scratch.total, scratch.part, t.rows, dims_.padded_dim);
    }
    finish(u, scratch.total);
  }

  // Splits of all units in waves of as many as there is room for; the caller merges after each wave. `rows`: the most
  // that a unit has.
  void run_splits(Workers& workers, int64_t units, int64_t rows, Carver& carver) {
    const auto state_bytes = static_cast<int64_t>(dims_.state_bytes(rows));
    const int64_t wave_max = parts_max(threads_);
    auto* totals = carver.take<std::byte>(state_bytes * units);
    auto* parts = carver.take<std::byte>(state_bytes * wave_max);
    const auto state_at = [&](std::byte* from, int64_t i) {
      Carver state(from + i * state_bytes);
      return dims_.state(state, rows);
    };
    int64_t next = 0, split = -1;
    while (next < units) {
      int64_t count = 0;
      for (; next < units && count < wave_max; ++count) {
        const Unit u = unit(next);
        if (split < 0) split = u.split_begin;
        split_tasks_[count] = {next, split};
        if (++split == u.split_end) ++next, split = -1;
      }
      spread(workers, count, [&](int64_t i, int slot) {
        const Unit u = unit(split_tasks_[i].unit);
        const ThreadScratch scratch = this->scratch(slot);
        AttentionTask t = task(u, scratch);
        const bool starts = split_tasks_[i].split == u.split_begin;
        attend_split(t, u, split_tasks_[i].split, starts ? state_at(totals, split_tasks_[i].unit) : state_at(parts, i));
      });
      for (int64_t i = 0; i < count; ++i) {
        const Unit u = unit(split_tasks_[i].unit);
        const AttentionState total = state_at(totals, split_tasks_[i].unit);
        if (split_tasks_[i].split != u.split_begin)
          functions_.merge(total, state_at(parts, i), u.tokens * dims_.heads_per_kv, dims_.padded_dim);
        if (split_tasks_[i].split + 1 == u.split_end) finish(u, total);
      }
    }
  }

  const isa::AttentionFunctions& functions_;
  const PagedAttention& op_;
  const Dims dims_;
  const Launch& launch_;
  const BatchInputs& batch_;
  const size_t thread_bytes_;
  int64_t threads_ = 1;
  int64_t* units_before_ = nullptr;  // [S + 1]
  SplitTask* split_tasks_ = nullptr;
  std::byte* scratch_ = nullptr;
};

}  // namespace

size_t flash_workspace(const PagedAttention& op, int threads, int64_t sequences) {
  return Flash::bytes(Dims(op), threads, sequences);
}

// (q [T, H*D], order edge) -> [T, H*D].
Result<> flash(const isa::AttentionFunctions& functions, const Launch& launch, Stream& stream) {
  const auto& op = attributes<PagedAttention>(launch);
  check_cache(op, launch.batch);
  const Dims dims(op);
  const int64_t sequences = launch.batch->sizes[Symbol::kSequences];
  int64_t threads = stream.workers().threads();
  while (threads > 1 && Flash::bytes(dims, threads, sequences) > launch.workspace.size()) --threads;
  BOLIDE_CHECK(Flash::bytes(dims, threads, sequences) <= launch.workspace.size(),
               "{} sequences in a workspace of {} bytes", sequences, launch.workspace.size());
  Flash(functions, op, launch).run(stream.workers(), threads);
  return {};
}

}  // namespace bolide::attention
