// Runner: executes steps of a planned model for a batch of sequences over the paged KV cache.
//
// Thread rules: one thread; it owns the plans, the cache and every Sequence handed to it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/batch_block.h"
#include "engine/bias_store.h"
#include "engine/scheduler.h"
#include "engine/token_history.h"
#include "kv/kv_cache.h"
#include "plan/executor.h"

namespace bolide {

struct RunnerOptions {
  int32_t context = 0;       // tokens a sequence may hold
  int32_t sequences = 1;     // in a step
  int64_t cache_tokens = 0;  // that all sequences together may hold; 0: each a full context
  int32_t tokens_per_step = 512;
  int32_t block_tokens = 16;  // P; `context` makes the cache contiguous
  DType kv_dtype = DType::kBF16;
  // Always on for devices whose work runs later: batches and results travel through pinned memory, steps in which every
  // sequence has one token are padded to their bucket, captured and replayed, and a step can be submitted before the
  // one before it is read.
  bool deferred = false;
};

// What one sequence does in a step: computes its next `tokens` tokens.
struct Work {
  Sequence* sequence = nullptr;
  int32_t tokens = 0;
  bool all_logits = false;  // logits of every token, not of the last alone
};

// Sizes that the graph's attention ops state.
struct GraphFacts {
  int32_t layers = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0;
  int64_t rope_switch = 0;   // tokens beyond which longrope uses its other frequencies; 0: never
  int64_t rope_dynamic = 0;  // tokens beyond which dynamic rope depends on the length; 0: never
  int64_t positions = 0;     // rows of the table of learned positions, which no context can exceed; 0: there is none
};
// Errors: the graph is not one that a Runner can drive: other inputs or outputs than a decoder's, layers that disagree.
Result<GraphFacts> facts_of(const Graph& graph);

// The cache that a Runner of these options makes. Errors: options that make no sense.
Result<KvLayout> cache_layout(const GraphFacts& facts, const RunnerOptions& options);

class Runner {
 public:
  // The cache has room for `cache_tokens`, or `sequences` of `context` tokens.
  static Result<Runner> make(PlanSet plans, const RunnerOptions& options, Device& device);

  // One step: submit and wait. Afterwards `logits()`, `next()` and `logprobs()` have a row per work (or per token with
  // all_logits), and every sequence's `computed` has grown. On an error no sequence has changed but for blocks it may
  // have gained. Error kCancelled: `cancel` was set, which is seen between the steps of the plan on a device whose work
  // runs at once (others have little to wait for), and not with an observer.
  Result<> step(std::span<const Work> work, const StepObserver* observer = nullptr,
                const std::atomic<bool>* cancel = nullptr);

  // Enqueues a step; every sequence's `computed` grows at once. With `deferred` two steps may be under way, without it
  // one. `chained`: the ids of this step are what the last submitted one, with as many rows, will have drawn, row by
  // row: the sequences' last tokens are placeholders that the caller replaces after wait. No sequence may then need its
  // history for penalties.
  using Ticket = uint64_t;  // above 0
  Result<Ticket> submit(std::span<const Work> work, bool chained = false, const StepObserver* observer = nullptr,
                        const std::atomic<bool>* cancel = nullptr);
  // A step that a scheduler made. Its answers do not change here but for `history_place`. Steps under way as above.
  Result<Ticket> submit(const StepBatch& batch);
  // Until the step's results are there, for `next()` and `logprobs()`. Steps are waited for in order. Error kInvalid:
  // no token can be drawn from the logits of a row.
  Result<> wait(Ticket ticket);
  // The same, with tokens below 0 where none can be drawn.
  Result<> wait_for_rows(Ticket ticket);
  // Waits for what is under way and forgets its results. Errors: the device has failed.
  Result<> settle();

  const int32_t* next() const { return next_; }  // [R] of the step that was waited for last
  const float* logprobs() const { return logprobs_; }
  // Of the rows whose requests want them; none if no row's does. Until the next wait. Of a row in a prompt that is
  // scored the log-probability is that of the prompt's next token, of others it is of no use.
  std::span<ScoredToken> tops() { return tops_; }
  // [R, V] f32 of the step that was submitted last, in host memory until the next is submitted.
  Result<TensorView> logits();
  // What a step wrote, as f32 on the host: for observers of values.
  Result<std::vector<float>> read(const TensorView& view);

  // Forgets everything after the first `keep` tokens; blocks go back.
  void truncate(Sequence& sequence, int32_t keep);
  // Gives back what is kept of a sequence beside its blocks.
  void forget(Sequence& sequence) { history_->truncate(sequence, 0); }

  const PlanSet& plans() const { return *plans_; }
  const RunnerOptions& options() const { return options_; }
  const GraphFacts& facts() const { return facts_; }
  int64_t vocab() const { return facts_.vocab; }
  // True if the sequence's cached keys are those that a sequence of `length` tokens would have: dynamic and long rope
  // rotate by the length at hand.
  bool cache_fits(const Sequence& sequence, int32_t length) const;
  // Tokens beyond which longrope uses its other frequencies; 0: never.
  int64_t rope_switch() const { return facts_.rope_switch; }
  size_t kv_bytes() const { return cache_->bytes(); }
  int32_t block_count() const { return cache_->layout().blocks; }
  size_t arena_bytes() const { return executor_->arena_bytes(); }
  Stream& stream() { return *stream_; }
  // The plan that a step of these sizes runs.
  Result<const Plan*> plan_for(const SymbolValues& sizes) { return plans_->select(sizes); }

  // Plans that were captured so far.
  int captured_count() const { return executor_->captured_count(); }

 private:
  Runner() = default;
  Result<> make_buffers(Device& device);
  Result<> reserve(std::span<const Work> work);
  // What a step computes of a sequence, however it was asked for: positions [first, first + tokens).
  struct Part {
    Sequence* sequence;
    int32_t first, tokens;
    int32_t length;            // of the sequence, for rope
    int32_t row_first;         // positions from here on have rows of logits
    bool draws;                // the last row is sampled as the sequence asks for
    int32_t chained_row = -1;  // row of the step submitted last that draws the last token's id
    int32_t top = 0;           // Request::top_logprobs, of its last row and of those that are scored
    int32_t scores = 0;        // StepItem::scores

    int32_t rows() const { return first + tokens - row_first; }
  };
  Result<Ticket> start(std::span<const Part> parts, const StepObserver* observer, const std::atomic<bool>* cancel);
  Result<> fill(std::span<const Part> parts, const SymbolValues& sizes, const BatchBlock::Arrays& arrays);
  Result<SamplingRow> sampling_of(Sequence& sequence, int32_t position);
  Result<> chain(std::span<const Part> parts);
  Result<> copy_blocks(std::span<const BlockCopy> copies);
  // The sizes that a step of these runs with, and whether it is replayed.
  SymbolValues padded(const SymbolValues& sizes, bool* replayed) const;
  Result<> fetch_results(int64_t rows);
  Result<> fetch_tops(std::span<const Part> parts);
  void find_tops(Ticket ticket);

  std::unique_ptr<PlanSet> plans_;
  RunnerOptions options_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<TokenHistory> history_;
  std::unique_ptr<BiasStore> biases_;
  std::vector<KvLayer> layers_;
  std::unique_ptr<BatchBlock> block_;
  BatchInputs batch_;
  GraphFacts facts_;
  Device* device_ = nullptr;

  // Results of the two steps that may be under way, in pinned memory; unused without `deferred`.
  struct Results {
    Buffer memory;
    std::unique_ptr<Event> there;
    int64_t rows = 0;
  };
  std::array<Results, 2> results_;
  // Rows of a step under way whose likeliest tokens are wanted; with `deferred` their logits come to the host.
  struct TopRow {
    int64_t row;
    int32_t count;
    int32_t token;  // whose log-probability is wanted; -1: that of the one that is drawn, which is known
  };
  struct Tops {
    std::vector<TopRow> rows;
    Buffer logits;  // [rows, V] f32
  };
  std::array<Tops, 2> tops_underway_;
  std::vector<ScoredToken> tops_;
  std::vector<int32_t> item_rows_;  // the last row of each item of the step submitted last
  Buffer logits_;
  bool logits_fetched_ = false;
  Ticket submitted_ = 0, waited_ = 0;
  int64_t rows_ = 0;         // of the step submitted last
  int64_t waited_rows_ = 0;  // of the step waited for last
  const int32_t* next_ = nullptr;
  const float* logprobs_ = nullptr;

  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Stream> stream_;  // last: its work ends before memory goes
};

}  // namespace bolide
