#include "engine/runner.h"

#include <fmt/format.h>

#include <algorithm>

namespace bolide {
namespace {

// Above these no machine has a use, and buffers sized by them stay small.
constexpr int32_t kTokensPerStepMax = 1 << 20;
constexpr int32_t kSequencesMax = 1 << 16;

Error no_decoder(std::string what) {
  return error(Code::kUnsupported, fmt::format("the graph is not a decoder's: {}", what));
}

// The inputs are those that the engine fills, the outputs those that it reads.
Result<> check_inputs_and_outputs(const Graph& graph) {
  const ValueType tokens = i32({Symbol::kTokens}), rows = i32({Symbol::kRows});
  for (size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.kind != ValueKind::kInput) continue;
    const bool known = value.name == "rows"
                           ? value.type == rows
                           : (value.name == "ids" || value.name == "positions") && value.type == tokens;
    if (!known) return no_decoder(fmt::format("it has an input {} : {}", value.name, to_string(value.type)));
  }
  for (const std::string_view name : {"logits", "next", "logprob"}) {
    const ValueId id = graph.output(name);
    if (id == kNoValue || graph.value(id).kind != ValueKind::kNode)
      return no_decoder(fmt::format("it has no output {}", name));
    const ValueType& type = graph.type(id);
    const ValueType want = name == "logits" ? f32({Symbol::kRows, type.last()})
                           : name == "next" ? rows
                                            : f32({Symbol::kRows});
    if (type != want) return no_decoder(fmt::format("its output {} is {}", name, to_string(type)));
  }
  return {};
}

uint64_t blocks_per_sequence(const RunnerOptions& options) {
  return ceil_div(static_cast<uint64_t>(options.context), static_cast<uint64_t>(options.block_tokens));
}

// Layers that a write to the cache names must be those that attention reads.
Result<> check_write(const GraphFacts& facts, int64_t layer, int64_t kv_heads, int64_t head_dim) {
  if (layer < facts.layers && kv_heads == facts.kv_heads && head_dim == facts.head_dim) return {};
  return no_decoder(fmt::format("layer {} stores {} heads of {} dims, attention of {} layers reads {} of {}", layer,
                                kv_heads, head_dim, facts.layers, facts.kv_heads, facts.head_dim));
}

}  // namespace

Result<GraphFacts> facts_of(const Graph& graph) {
  GraphFacts facts;
  BOLIDE_TRY(check_inputs_and_outputs(graph));
  for (const NodeId id : graph.order()) {
    const Op& op = graph.node(id).op;
    if (const auto* attention = std::get_if<PagedAttention>(&op)) {
      const auto kv_heads = static_cast<int32_t>(attention->kv_heads),
                 head_dim = static_cast<int32_t>(attention->head_dim);
      if (facts.layers > 0 && (facts.kv_heads != kv_heads || facts.head_dim != head_dim))
        return error(Code::kUnsupported, "layers with different key-value heads cannot share one cache yet");
      facts.kv_heads = kv_heads;
      facts.head_dim = head_dim;
      facts.layers = std::max(facts.layers, static_cast<int32_t>(attention->layer) + 1);
    }
    const RopeSpec* rope = nullptr;
    if (const auto* fused = std::get_if<RopeKvWrite>(&op)) rope = &fused->rope;
    if (const auto* plain = std::get_if<Rope>(&op)) rope = &plain->rope;
    if (rope != nullptr && rope->kind == RopeKind::kLong) facts.rope_switch = rope->original_context;
    if (rope != nullptr && rope->kind == RopeKind::kDynamic) facts.rope_dynamic = rope->original_context;
  }
  for (const NodeId id : graph.order())
    if (const Node& node = graph.node(id);
        std::holds_alternative<Embed>(node.op) && node.in[0] == graph.input("positions"))
      facts.positions = graph.type(node.in[1]).dims[0].factor;
  if (facts.layers == 0) return no_decoder("it has no attention");
  for (const NodeId id : graph.order()) {
    const Op& op = graph.node(id).op;
    if (const auto* write = std::get_if<KvWrite>(&op))
      BOLIDE_TRY(check_write(facts, write->layer, write->kv_heads, write->head_dim));
    if (const auto* write = std::get_if<RopeKvWrite>(&op))
      BOLIDE_TRY(check_write(facts, write->layer, write->kv_heads, write->head_dim));
  }
  facts.vocab = graph.type(graph.output("logits")).last().factor;
  return facts;
}

Result<KvLayout> cache_layout(const GraphFacts& facts, const RunnerOptions& options) {
  if (options.context < 1 || options.sequences < 1 || options.tokens_per_step < 1 || options.block_tokens < 1)
    return error(Code::kInvalid, "context, sequences, tokens per step and block size must be positive");
  if (options.tokens_per_step > kTokensPerStepMax || options.sequences > kSequencesMax)
    return error(Code::kInvalid,
                 fmt::format("{} tokens a step and {} sequences: at most {} and {}", options.tokens_per_step,
                             options.sequences, kTokensPerStepMax, kSequencesMax));
  const uint64_t blocks = blocks_per_sequence(options) * static_cast<uint64_t>(options.sequences);
  if (blocks > INT32_MAX)
    return error(Code::kInvalid, fmt::format("--context {}: the KV cache would need {} blocks; ask for a smaller one",
                                             options.context, blocks));
  return KvLayout{facts.layers,         facts.kv_heads,   facts.head_dim,
                  options.block_tokens, options.kv_dtype, static_cast<int32_t>(blocks)};
}

Result<Runner> Runner::make(PlanSet plans, const RunnerOptions& options, Device& device) {
  BOLIDE_TRY(const GraphFacts facts, facts_of(plans.graph()));
  BOLIDE_TRY(const KvLayout layout, cache_layout(facts, options));
  Runner runner;
  runner.plans_ = std::make_unique<PlanSet>(std::move(plans));
  runner.options_ = options;
  runner.facts_ = facts;
  const uint64_t per_sequence = blocks_per_sequence(options);
  BOLIDE_TRY(KvCache cache, KvCache::make(layout, device));
  runner.cache_ = std::make_unique<KvCache>(std::move(cache));
  BOLIDE_TRY(runner.stream_, device.make_stream());

  const auto tokens = static_cast<size_t>(options.tokens_per_step), sequences = static_cast<size_t>(options.sequences);
  for (auto* list : {&runner.ids_, &runner.positions_, &runner.rows_}) list->resize(tokens);
  runner.cu_tokens_.resize(sequences + 1);
  for (auto* list : {&runner.context_, &runner.rope_length_}) list->resize(sequences);
  runner.block_table_.resize(sequences * per_sequence);
  runner.slots_.resize(tokens);
  runner.sampling_.resize(tokens);
  for (const KvCache::LayerPools pools : runner.cache_->layers()) runner.layers_.push_back({pools.k, pools.v});

  BatchInputs& batch = runner.batch_;
  batch.ids = runner.ids_.data();
  batch.positions = runner.positions_.data();
  batch.rows = runner.rows_.data();
  batch.cu_tokens = runner.cu_tokens_.data();
  batch.context = runner.context_.data();
  batch.rope_length = runner.rope_length_.data();
  batch.block_table = runner.block_table_.data();
  batch.block_table_stride = static_cast<int32_t>(per_sequence);
  batch.slots = runner.slots_.data();
  batch.kv = {options.kv_dtype, options.block_tokens, facts.kv_heads, facts.head_dim, runner.layers_};
  return runner;
}

// Blocks for every token that this step computes.
Result<> Runner::reserve(std::span<const Work> work) {
  for (const Work& w : work) {
    Sequence& sequence = *w.sequence;
    const int32_t end = sequence.computed + w.tokens;
    BOLIDE_CHECK(w.tokens > 0 && end <= sequence.size(), "a step of {} tokens at {} of {}", w.tokens, sequence.computed,
                 sequence.size());
    if (end > options_.context)
      return error(Code::kInvalid,
                   fmt::format("the context of {} tokens is full; a larger --context holds more", options_.context));
    while (static_cast<int64_t>(sequence.blocks.size()) * options_.block_tokens < end) {
      BOLIDE_TRY(const BlockId block, cache_->allocator().take());
      sequence.blocks.push_back(block);
    }
  }
  return {};
}

void Runner::fill(std::span<const Work> work) {
  int32_t token = 0, row = 0;
  const int32_t P = options_.block_tokens;
  for (size_t s = 0; s < work.size(); ++s) {
    const Sequence& sequence = *work[s].sequence;
    cu_tokens_[s] = token;
    const int32_t begin = sequence.computed, end = begin + work[s].tokens;
    context_[s] = end;
    rope_length_[s] = sequence.size();
    std::copy(sequence.blocks.begin(), sequence.blocks.end(),
              block_table_.begin() + static_cast<ptrdiff_t>(s) * batch_.block_table_stride);
    for (int32_t position = begin; position < end; ++position, ++token) {
      const auto t = static_cast<size_t>(token);
      ids_[t] = sequence.tokens[static_cast<size_t>(position)];
      positions_[t] = position;
      slots_[t] = int64_t{sequence.blocks[static_cast<size_t>(position / P)]} * P + position % P;
      if (!work[s].all_logits && position + 1 < end) continue;
      rows_[static_cast<size_t>(row)] = token;
      const SamplingParams& p = sequence.sampling;
      sampling_[static_cast<size_t>(row++)] = {p.temperature,
                                               p.top_p,
                                               p.min_p,
                                               p.repetition_penalty,
                                               p.presence_penalty,
                                               p.frequency_penalty,
                                               p.top_k,
                                               p.seed,
                                               sequence.request,
                                               position + 1,
                                               sequence.tokens.data(),
                                               position + 1,
                                               std::min(position + 1, sequence.prompt_count)};
    }
  }
  cu_tokens_[work.size()] = token;
  batch_.sizes[Symbol::kTokens] = token;
  batch_.sizes[Symbol::kSequences] = static_cast<int64_t>(work.size());
  batch_.sizes[Symbol::kRows] = row;
  batch_.sampling = std::span(sampling_).first(static_cast<size_t>(row));
}

Result<> Runner::step(std::span<const Work> work, const StepObserver* observer) {
  int64_t tokens = 0;
  for (const Work& w : work) tokens += w.tokens;
  BOLIDE_CHECK(
      !work.empty() && static_cast<int64_t>(work.size()) <= options_.sequences && tokens <= options_.tokens_per_step,
      "a step of {} sequences and {} tokens", work.size(), tokens);
  BOLIDE_TRY(reserve(work));
  fill(work);
  BOLIDE_TRY(const Plan* plan, plans_->select(batch_.sizes));
  if (auto done = executor_.run(*plan, plans_->graph(), batch_, *stream_, observer); !done) {
    const std::string& file = plans_->weights().label();
    return file.empty() ? std::move(done).error() : std::move(done).error().context(file);
  }
  for (const Work& w : work) {
    w.sequence->computed += w.tokens;
    w.sequence->rope_length = w.sequence->size();
  }
  return {};
}

bool Runner::cache_fits(const Sequence& sequence, int32_t length) const {
  if (facts_.rope_switch > 0 && (sequence.rope_length > facts_.rope_switch) != (length > facts_.rope_switch))
    return false;
  return facts_.rope_dynamic <= 0 || std::max(sequence.rope_length, length) <= facts_.rope_dynamic;
}

void Runner::truncate(Sequence& sequence, int32_t keep) {
  const size_t blocks = ceil_div(static_cast<uint64_t>(keep), static_cast<uint64_t>(options_.block_tokens));
  while (sequence.blocks.size() > blocks) {
    cache_->allocator().give(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
  sequence.computed = std::min(sequence.computed, keep);
  sequence.tokens.resize(static_cast<size_t>(std::min(sequence.size(), keep)));
}

}  // namespace bolide
