#include "engine/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/top_logprobs.h"
#include "tensor/block_codec.h"

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
  uint64_t blocks = blocks_per_sequence(options) * static_cast<uint64_t>(options.sequences);
  if (options.cache_tokens > 0)  // a sequence of the whole context must fit
    blocks = std::max(blocks_per_sequence(options), ceil_div(static_cast<uint64_t>(options.cache_tokens),
                                                             static_cast<uint64_t>(options.block_tokens)));
  if (blocks > INT32_MAX)
    return error(Code::kInvalid, fmt::format("--context {}: the KV cache would need {} blocks; ask for a smaller one",
                                             options.context, blocks));
  return KvLayout{facts.layers,         facts.kv_heads,   facts.head_dim,
                  options.block_tokens, options.kv_dtype, static_cast<int32_t>(blocks),
                  options.context};
}

Result<Runner> Runner::make(PlanSet plans, const RunnerOptions& options, Device& device) {
  BOLIDE_TRY(const GraphFacts facts, facts_of(plans.graph()));
  BOLIDE_TRY(const KvLayout layout, cache_layout(facts, options));
  Runner runner;
  runner.plans_ = std::make_unique<PlanSet>(std::move(plans));
  runner.options_ = options;
  runner.options_.deferred = options.deferred || device.info().id.kind != DeviceKind::kCpu;
  runner.facts_ = facts;
  BOLIDE_TRY(KvCache cache, KvCache::make(layout, device));
  runner.cache_ = std::make_unique<KvCache>(std::move(cache));
  BOLIDE_TRY(runner.stream_, device.make_stream());
  if (device.info().id.kind != DeviceKind::kCpu)  // what a kernel reads behind a sequence's end must not be NaN
    BOLIDE_TRY(runner.stream_->fill(runner.cache_->memory(), std::byte{0}));
  for (const KvCache::LayerPools pools : runner.cache_->layers()) runner.layers_.push_back({pools.k, pools.v});
  runner.batch_.kv = {options.kv_dtype, options.block_tokens, facts.kv_heads, facts.head_dim, runner.layers_};
  runner.device_ = &device;
  runner.executor_ = std::make_unique<Executor>(device);
  BOLIDE_TRY(runner.make_buffers(device));
  return runner;
}

Result<> Runner::make_buffers(Device& device) {
  const SymbolValues& limits = plans_->limits().sizes;
  BatchBlock::Room room;
  room.sizes = {{std::max<int64_t>(options_.tokens_per_step, limits[Symbol::kTokens]),
                 std::max<int64_t>(options_.sequences, limits[Symbol::kSequences]),
                 std::max<int64_t>(options_.tokens_per_step, limits[Symbol::kRows])}};
  room.block_table_stride = static_cast<int32_t>(
      ceil_div(static_cast<uint64_t>(options_.context), static_cast<uint64_t>(options_.block_tokens)));
  batch_.block_table_stride = room.block_table_stride;
  BOLIDE_TRY(BatchBlock block, BatchBlock::make(device, room, options_.deferred));
  block_ = std::make_unique<BatchBlock>(std::move(block));
  history_ = std::make_unique<TokenHistory>(device, options_.sequences, options_.context);
  biases_ = std::make_unique<BiasStore>(device, options_.sequences);
  if (!options_.deferred) return {};
  for (Results& results : results_) {
    BOLIDE_TRY(results.memory,
               device.allocate(static_cast<size_t>(limits[Symbol::kRows]) * 2 * sizeof(int32_t), Memory::kPinned));
    BOLIDE_TRY(results.there, device.make_event());
  }
  const int64_t S = limits[Symbol::kSequences];
  size_t arena_bytes = 0;
  for (const SymbolValues& sizes : {limits, SymbolValues{{S, S, std::min(S, limits[Symbol::kRows])}}}) {
    BOLIDE_TRY(const Plan* plan, plans_->select(sizes));
    arena_bytes = std::max(arena_bytes, plan->arena_bytes());
  }
  return executor_->reserve(arena_bytes, *stream_);
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

// How the token after `position` is drawn.
Result<SamplingRow> Runner::sampling_of(Sequence& sequence, int32_t position) {
  const SamplingParams& p = sequence.sampling;
  SamplingRow row{p.temperature,
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
  if (p.biases != nullptr) {
    row.biases = p.biases->pairs.data();
    row.bias_count = p.biases->count_at(position + 1 - sequence.prompt_count);
  }
  if (!options_.deferred) return row;
  if (row.bias_count > 0) {
    BOLIDE_TRY(row.biases, biases_->find(p.biases, *stream_));
  }
  if (row.needs_history()) {
    BOLIDE_TRY(row.history, history_->update(sequence, position + 1, *stream_));
  } else {
    row.history = nullptr;
    row.history_count = row.prompt_count = 0;
  }
  return row;
}

Result<> Runner::fill(std::span<const Part> parts, const SymbolValues& sizes, const BatchBlock::Arrays& arrays) {
  int32_t token = 0, row = 0;
  const int32_t P = options_.block_tokens;
  const ptrdiff_t stride = batch_.block_table_stride;
  for (size_t s = 0; s < parts.size(); ++s) {
    const Part& part = parts[s];
    Sequence& sequence = *part.sequence;
    arrays.cu_tokens[s] = token;
    const int32_t end = part.first + part.tokens;
    arrays.context[s] = end;
    arrays.rope_length[s] = part.length;
    int32_t* table = arrays.block_table + static_cast<ptrdiff_t>(s) * stride;
    std::fill(std::copy(sequence.blocks.begin(), sequence.blocks.end(), table), table + stride, 0);
    for (int32_t position = part.first; position < end; ++position, ++token) {
      arrays.ids[token] = sequence.tokens[static_cast<size_t>(position)];
      arrays.positions[token] = position;
      arrays.slots[token] = int64_t{sequence.blocks[static_cast<size_t>(position / P)]} * P + position % P;
      if (position < part.row_first) continue;
      arrays.rows[row] = token;
      arrays.sampling[row] = {};
      if (part.draws && position >= part.row_first + part.scores) {
        BOLIDE_TRY(arrays.sampling[row], sampling_of(sequence, position));
      }
      ++row;
    }
  }
  arrays.cu_tokens[parts.size()] = token;
  for (size_t i = 0; i < kSymbols; ++i) arrays.counts[i] = static_cast<int32_t>(sizes.value[i]);
  return {};
}

SymbolValues Runner::padded(const SymbolValues& sizes, bool* replayed) const {
  *replayed = false;
  const int64_t count = sizes[Symbol::kTokens];
  if (!options_.deferred || sizes[Symbol::kSequences] != count || sizes[Symbol::kRows] != count) return sizes;
  SymbolValues bucket;
  for (size_t i = 0; i < kSymbols; ++i) {
    bucket.value[i] = bucket_of(count, plans_->limits().sizes.value[i]);
    if (bucket.value[i] != bucket.value[0]) return sizes;
  }
  *replayed = true;
  return bucket;
}

// Sends the step's results on their way to the host.
Result<> Runner::fetch_results(int64_t rows) {
  if (!options_.deferred) return {};
  Results& results = results_[submitted_ % 2];
  results.rows = rows;
  const size_t half = results.memory.size() / 2;
  const size_t bytes = static_cast<size_t>(rows) * sizeof(int32_t);
  static_assert(sizeof(float) == sizeof(int32_t));
  BOLIDE_TRY(copy_bytes(*stream_, results.memory.bytes().first(bytes), {executor_->output("next").data, bytes}));
  BOLIDE_TRY(
      copy_bytes(*stream_, results.memory.bytes().subspan(half, bytes), {executor_->output("logprob").data, bytes}));
  return stream_->record(*results.there);
}

// Ids that the step before draws are copied to where this step reads them, in as few pieces as they lie in.
Result<> Runner::chain(std::span<const Part> parts) {
  std::byte* ids = reinterpret_cast<std::byte*>(const_cast<int32_t*>(batch_.ids));
  constexpr size_t kId = sizeof(int32_t);
  size_t to = 0, from = 0, count = 0, token = 0;  // the piece at hand, and the token that the loop is at
  const auto copy = [&]() -> Result<> {
    if (count == 0) return {};
    const std::byte* drawn = executor_->output("next").data;
    return copy_bytes(*stream_, {ids + to * kId, count * kId}, {drawn + from * kId, count * kId});
  };
  for (const Part& part : parts) {
    token += static_cast<size_t>(part.tokens);
    if (part.chained_row < 0) continue;
    BOLIDE_CHECK(options_.deferred && part.chained_row < rows_, "row {} of a step of {}", part.chained_row, rows_);
    const size_t last = token - 1, row = static_cast<size_t>(part.chained_row);
    if (count > 0 && last == to + count && row == from + count) {
      ++count;
      continue;
    }
    BOLIDE_TRY(copy());
    to = last, from = row, count = 1;
  }
  return copy();
}

Result<Runner::Ticket> Runner::start(std::span<const Part> parts, const StepObserver* observer,
                                     const std::atomic<bool>* cancel) {
  SymbolValues sizes{{0, static_cast<int64_t>(parts.size()), 0}};
  for (const Part& part : parts) {
    sizes[Symbol::kTokens] += part.tokens;
    sizes[Symbol::kRows] += part.rows();
  }
  BOLIDE_CHECK(!parts.empty() && static_cast<int64_t>(parts.size()) <= options_.sequences &&
                   sizes[Symbol::kTokens] <= options_.tokens_per_step,
               "a step of {} sequences and {} tokens", parts.size(), sizes[Symbol::kTokens]);
  BOLIDE_CHECK(submitted_ - waited_ < (options_.deferred ? 2 : 1), "{} steps under way", submitted_ - waited_);
  bool replayed = false;
  const SymbolValues run_sizes = padded(sizes, &replayed);
  BOLIDE_TRY(const Plan* plan, plans_->select(run_sizes));
  BOLIDE_TRY(const BatchBlock::Arrays arrays, block_->begin(run_sizes));
  history_->begin_step();
  biases_->begin_step();
  BOLIDE_TRY(fill(parts, sizes, arrays));
  if (replayed) pad(arrays, sizes, run_sizes, batch_.block_table_stride);
  BOLIDE_TRY(block_->send(*stream_, batch_));
  BOLIDE_TRY(chain(parts));
  rows_ = sizes[Symbol::kRows];
  logits_fetched_ = false;
  if (options_.deferred) cancel = nullptr;  // all steps are sent at once; what was sent runs
  auto done = replayed && (observer == nullptr || observer->sees() == StepObserver::Sees::kWhole)
                  ? executor_->replay(*plan, plans_->graph(), batch_, *stream_, observer)
                  : executor_->run(*plan, plans_->graph(), batch_, *stream_, observer, cancel);
  if (!done) {
    const std::string& file = plans_->weights().label();
    return file.empty() ? std::move(done).error() : std::move(done).error().context(file);
  }
  ++submitted_;
  BOLIDE_TRY(fetch_tops(parts));
  BOLIDE_TRY(fetch_results(rows_));
  return submitted_;
}

Result<Runner::Ticket> Runner::submit(std::span<const Work> work, bool chained, const StepObserver* observer,
                                      const std::atomic<bool>* cancel) {
  BOLIDE_TRY(reserve(work));
  std::vector<Part> parts;
  for (const Work& w : work) {
    Sequence& s = *w.sequence;
    const auto row = static_cast<int32_t>(parts.size());
    const int32_t row_first = w.all_logits ? s.computed : s.computed + w.tokens - 1;
    parts.push_back({&s, s.computed, w.tokens, s.size(), row_first, true, chained ? row : -1});
  }
  BOLIDE_TRY(const Ticket ticket, start(parts, observer, cancel));
  for (const Work& w : work) {
    w.sequence->computed += w.tokens;
    w.sequence->rope_length = w.sequence->size();
  }
  return ticket;
}

Result<Runner::Ticket> Runner::submit(const StepBatch& batch) {
  BOLIDE_TRY(copy_blocks(batch.copies));
  std::vector<Part> parts;
  for (const StepItem& item : batch.items) {
    BOLIDE_CHECK(item.chained_item < static_cast<int32_t>(item_rows_.size()), "item {} of a step of {}",
                 item.chained_item, item_rows_.size());
    const int32_t chained_row = item.chained_item < 0 ? -1 : item_rows_[static_cast<size_t>(item.chained_item)];
    parts.push_back({&item.answer->sequence, item.first, item.tokens, item.length, item.row_first, item.draws,
                     chained_row, item.answer->request->top_logprobs, item.scores});
  }
  item_rows_.clear();
  int32_t rows = 0;
  for (const Part& part : parts) item_rows_.push_back((rows += part.rows()) - 1);
  return start(parts, nullptr, nullptr);
}

Result<> Runner::copy_blocks(std::span<const BlockCopy> copies) {
  const auto bytes = static_cast<size_t>(batch_.kv.block_stride()) * static_cast<size_t>(bits_of(batch_.kv.dtype)) / 8;
  for (const BlockCopy copy : copies)
    for (const KvLayer& layer : layers_)
      for (std::byte* pool : {layer.k, layer.v})
        BOLIDE_TRY(copy_bytes(*stream_, {pool + static_cast<size_t>(copy.to) * bytes, bytes},
                              {pool + static_cast<size_t>(copy.from) * bytes, bytes}));
  return {};
}

Result<> Runner::wait_for_rows(Ticket ticket) {
  BOLIDE_CHECK(ticket == waited_ + 1 && ticket <= submitted_, "waiting for step {} after {} of {}", ticket, waited_,
               submitted_);
  waited_ = ticket;
  if (!options_.deferred) {
    next_ = executor_->output("next").as<int32_t>();
    logprobs_ = executor_->output("logprob").as<float>();
    waited_rows_ = rows_;
    find_tops(ticket);
    return {};
  }
  const Results& results = results_[ticket % 2];
  BOLIDE_TRY(results.there->synchronize());
  next_ = reinterpret_cast<const int32_t*>(results.memory.data());
  logprobs_ = reinterpret_cast<const float*>(results.memory.data() + results.memory.size() / 2);
  waited_rows_ = results.rows;
  find_tops(ticket);
  return {};
}

// Notes of which rows likeliest tokens or others are wanted, and sends their logits on their way to the host.
Result<> Runner::fetch_tops(std::span<const Part> parts) {
  Tops& tops = tops_underway_[submitted_ % 2];
  tops.rows.clear();
  int64_t row = 0;
  for (const Part& part : parts) {
    for (int32_t i = 0; i < part.scores; ++i)
      tops.rows.push_back({row + i, part.top, part.sequence->tokens[static_cast<size_t>(part.row_first + i + 1)]});
    row += part.rows();
    if (part.top > 0 && part.draws) tops.rows.push_back({row - 1, part.top, -1});
  }
  if (tops.rows.empty() || !options_.deferred) return {};
  const auto bytes = static_cast<size_t>(facts_.vocab) * sizeof(float);
  if (tops.logits.size() < bytes * tops.rows.size()) {  // nobody uses it: the step before the last is over
    tops.logits = {};
    BOLIDE_TRY(tops.logits, device_->allocate(bytes * tops.rows.size(), Memory::kPinned).context("logits"));
  }
  const TensorView logits = executor_->output("logits");
  for (size_t i = 0; i < tops.rows.size(); ++i) {
    const std::byte* from = logits.data + static_cast<size_t>(tops.rows[i].row * logits.row_stride) * sizeof(float);
    BOLIDE_TRY(copy_bytes(*stream_, tops.logits.bytes().subspan(i * bytes, bytes), {from, bytes}));
  }
  return {};
}

void Runner::find_tops(Ticket ticket) {
  tops_.clear();
  const Tops& tops = tops_underway_[ticket % 2];
  if (tops.rows.empty()) return;
  tops_.resize(static_cast<size_t>(waited_rows_));
  const auto vocab = static_cast<size_t>(facts_.vocab);
  for (size_t i = 0; i < tops.rows.size(); ++i) {
    const auto [row, count, token] = tops.rows[i];
    const float* logits = options_.deferred ? reinterpret_cast<const float*>(tops.logits.data()) + i * vocab
                                            : executor_->output("logits").row<float>(row);
    const int32_t drawn = next_[row];
    ScoredToken& made = tops_[static_cast<size_t>(row)];
    made.logprob = NAN;
    if (drawn < 0 || drawn >= facts_.vocab) continue;
    // What was drawn has its log-probability already, from which the sum follows.
    const double log_total = double{logits[drawn]} - double{logprobs_[row]};
    made.top = top_logprobs({logits, vocab}, count, log_total);
    if (token >= 0) made.logprob = static_cast<float>(double{logits[token]} - log_total);
  }
}

Result<> Runner::wait(Ticket ticket) {
  BOLIDE_TRY(wait_for_rows(ticket));
  for (int64_t row = 0; row < waited_rows_; ++row)
    if (next_[row] < 0 || next_[row] >= facts_.vocab)
      return error(
          Code::kInvalid,
          fmt::format("row {} of the logits has values that are NaN or infinite: the model's arithmetic failed "
                      "for this sequence, or its weights are damaged",
                      row));
  return {};
}

Result<> Runner::settle() {
  while (waited_ < submitted_)
    if (auto done = wait(waited_ + 1); !done && done.error().code == Code::kUnavailable) return done;
  return {};
}

Result<> Runner::step(std::span<const Work> work, const StepObserver* observer, const std::atomic<bool>* cancel) {
  BOLIDE_TRY(settle());
  auto ticket = submit(work, false, observer, cancel);
  if (!ticket) {
    waited_ = submitted_;
    return std::move(ticket).error();
  }
  auto done = wait(*ticket);
  if (done) return done;
  for (const Work& w : work) w.sequence->computed -= w.tokens;
  return done;
}

Result<TensorView> Runner::logits() {
  TensorView view = executor_->output("logits");
  if (!options_.deferred) return view;
  view.shape[0] = rows_;
  const size_t bytes = static_cast<size_t>(rows_ * view.cols()) * sizeof(float);
  if (!logits_fetched_) {
    if (logits_.size() < bytes) {
      logits_ = {};
      BOLIDE_TRY(logits_, device_->allocate(bytes, Memory::kPinned).context("logits"));
    }
    BOLIDE_TRY(copy_bytes(*stream_, logits_.bytes().first(bytes), {view.data, bytes}));
    BOLIDE_TRY(stream_->synchronize());
    logits_fetched_ = true;
  }
  view.data = logits_.data();
  view.device = {};
  return view;
}

Result<std::vector<float>> Runner::read(const TensorView& view) {
  if (view.quant != nullptr || (view.dtype != DType::kF32 && view.dtype != DType::kBF16))
    return error(Code::kUnsupported, fmt::format("reading values of type {}", to_string(view.dtype)));
  const auto rows = static_cast<size_t>(view.rows()), cols = static_cast<size_t>(view.cols());
  const size_t element = static_cast<size_t>(bits_of(view.dtype)) / 8;
  std::vector<std::byte> raw(rows * cols * element);
  for (size_t row = 0; row < rows; ++row)
    BOLIDE_TRY(copy_bytes(
        *stream_, MutableBytes(raw).subspan(row * cols * element, cols * element),
        {view.data + static_cast<ptrdiff_t>(row) * view.row_stride * static_cast<ptrdiff_t>(element), cols * element}));
  BOLIDE_TRY(stream_->synchronize());
  std::vector<float> values(rows * cols);
  decode_row(view.dtype, nullptr, raw.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

bool Runner::cache_fits(const Sequence& sequence, int32_t length) const {
  if (facts_.rope_switch > 0 && (sequence.rope_length > facts_.rope_switch) != (length > facts_.rope_switch))
    return false;
  return facts_.rope_dynamic <= 0 || std::max(sequence.rope_length, length) <= facts_.rope_dynamic;
}

void Runner::truncate(Sequence& sequence, int32_t keep) {
  history_->truncate(sequence, keep);
  const size_t blocks = ceil_div(static_cast<uint64_t>(keep), static_cast<uint64_t>(options_.block_tokens));
  while (sequence.blocks.size() > blocks) {
    cache_->allocator().give(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
  sequence.computed = std::min(sequence.computed, keep);
  sequence.tokens.resize(static_cast<size_t>(std::min(sequence.size(), keep)));
}

}  // namespace bolide
