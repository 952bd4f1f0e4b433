// Runner: executes steps of a planned model for a batch of sequences over the paged KV cache.
//
// Thread rules: one thread; it owns the plans, the cache and every Sequence handed to it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "kv/kv_cache.h"
#include "plan/executor.h"

namespace bolide {

struct RunnerOptions {
  int32_t context = 0;    // tokens a sequence may hold
  int32_t sequences = 1;  // sequences that the cache has room for
  int32_t tokens_per_step = 512;
  int32_t block_tokens = 16;  // P; `context` makes the cache contiguous
  DType kv_dtype = DType::kBF16;
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
  // The cache has room for `sequences` of `context` tokens.
  static Result<Runner> make(PlanSet plans, const RunnerOptions& options, Device& device);

  // One step. Afterwards `logits()`, `next()` and `logprobs()` have a row per work (or per token with all_logits), and
  // every sequence's `computed` has grown. On an error no sequence has changed but for blocks it may have gained.
  Result<> step(std::span<const Work> work, const StepObserver* observer = nullptr);

  TensorView logits() const { return executor_.output("logits"); }                // [R, V] f32
  const int32_t* next() const { return executor_.output("next").as<int32_t>(); }  // [R]
  const float* logprobs() const { return executor_.output("logprob").as<float>(); }

  // Forgets everything after the first `keep` tokens; blocks go back.
  void truncate(Sequence& sequence, int32_t keep);

  const PlanSet& plans() const { return *plans_; }
  const RunnerOptions& options() const { return options_; }
  int64_t vocab() const { return facts_.vocab; }
  // True if the sequence's cached keys are those that a sequence of `length` tokens would have: dynamic and long rope
  // rotate by the length at hand.
  bool cache_fits(const Sequence& sequence, int32_t length) const;
  // Tokens beyond which longrope uses its other frequencies; 0: never.
  int64_t rope_switch() const { return facts_.rope_switch; }
  size_t kv_bytes() const { return cache_->bytes(); }
  size_t arena_bytes() const { return executor_.arena_bytes(); }
  Stream& stream() { return *stream_; }
  // The plan that a step of these sizes runs.
  Result<const Plan*> plan_for(const SymbolValues& sizes) { return plans_->select(sizes); }

 private:
  Runner() = default;
  Result<> reserve(std::span<const Work> work);
  void fill(std::span<const Work> work);

  std::unique_ptr<PlanSet> plans_;
  RunnerOptions options_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Stream> stream_;
  Executor executor_;
  GraphFacts facts_;

  // The batch's contents, at fixed addresses for the life of the runner.
  std::vector<int32_t> ids_, positions_, rows_, cu_tokens_, context_, rope_length_, block_table_;
  std::vector<int64_t> slots_;
  std::vector<SamplingRow> sampling_;
  std::vector<KvLayer> layers_;
  BatchInputs batch_;
};

}  // namespace bolide
