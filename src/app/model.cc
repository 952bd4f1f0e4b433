#include "app/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <set>

#include "app/engine.h"
#include "base/knobs.h"
#include "base/log.h"
#include "formats/round_to_bf16.h"
#include "formats/tokenizer_gguf.h"
#include "formats/tokenizer_json.h"
#include "formats/tokenizer_model.h"
#include "models/families.h"

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

// Beyond this the cache would be sized for contexts that few prompts need; --context asks for more.
constexpr int64_t kDefaultContextMax = 4096;

void add_unique(std::vector<int32_t>& ids, int64_t id) {
  if (id >= 0 && id <= INT32_MAX && std::find(ids.begin(), ids.end(), id) == ids.end())
    ids.push_back(static_cast<int32_t>(id));
}

// Every id that ends a text: the configuration's list, the tokenizer's, GGUF's end of turn.
std::vector<int32_t> stop_ids_of(const LoadedModel& loaded, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const int64_t id : loaded.generation.eos_ids) add_unique(ids, id);
  for (const int32_t id : tokenizer.end_ids()) add_unique(ids, id);
  if (loaded.tokenizer.gguf.has_value())
    for (const auto& id : {loaded.tokenizer.gguf->eot_id, loaded.tokenizer.gguf->eom_id})
      add_unique(ids, id.value_or(-1));
  return ids;
}

Result<> vocab_fits(const Tokenizer& tokenizer, int64_t vocab, const std::string& name) {
  if (tokenizer.vocab_size() <= vocab) return {};
  return error(Code::kInvalid,
               fmt::format("{}: the tokenizer has {} tokens, the embedding {} rows: they belong to different models",
                           name, tokenizer.vocab_size(), vocab));
}

// A tensor that no part of the graph reads is a sign of a forgotten bias or norm: the answer would be wrong in silence.
void report_unused(const Graph& graph, const WeightSource& weights) {
  std::set<std::string_view> used;
  for (size_t i = 0; i < graph.value_count(); ++i)
    for (const WeightPart& part : graph.value(static_cast<ValueId>(i)).parts) used.insert(part.tensor);
  int64_t unused = 0;
  std::string first;
  for (const std::string& name : weights.names()) {
    // Tables of rotary frequencies, which some checkpoints carry, are computed from the configuration.
    if (used.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
    if (unused++ == 0) first = name;
  }
  if (unused > 0)
    log::warning(
        "tensors of the checkpoint are not used",
        {{"tensors", unused}, {"first", std::string_view(first)}, {"file", std::string_view(weights.label())}});
}

}  // namespace

void leave_inputs_alone(Graph& graph) {
  for (const NodeId id : graph.order()) {
    Op& op = graph.node(id).op;
    if (auto* linear = std::get_if<Linear>(&op)) linear->rounding = InputRounding::kNone;
    if (auto* qkv = std::get_if<QkvRope>(&op)) qkv->linear.rounding = InputRounding::kNone;
  }
}

std::filesystem::path tuning_file(const ModelOptions& options, const DeviceInfo& device) {
  if (!options.tuning_cache.empty()) return options.tuning_cache;
  const std::filesystem::path folder = user_cache_folder();
  return folder.empty() ? folder : folder / "bolide" / tuning_file_name(device);
}

Result<Tokenizer> make_tokenizer(const LoadedModel& loaded) {
  const TokenizerAssets& assets = loaded.tokenizer;
  TokenizerSpec spec;
  if (assets.gguf.has_value()) {
    BOLIDE_TRY(spec, tokenizer_from_gguf(*assets.gguf));
  } else if (!assets.tokenizer_json.empty()) {
    BOLIDE_TRY(spec, parse_tokenizer_json(assets.tokenizer_json).context("tokenizer.json"));
  } else if (!assets.tokenizer_model.empty()) {
    BOLIDE_TRY(spec, parse_tokenizer_model(as_bytes(assets.tokenizer_model)).context("tokenizer.model"));
  } else {
    return error(Code::kNotFound, "there is no tokenizer: tokenizer.json and tokenizer.model are missing or empty");
  }
  if (!assets.tokenizer_config_json.empty())
    BOLIDE_TRY(apply_tokenizer_config(spec, assets.tokenizer_config_json).context("tokenizer_config.json"));
  return Tokenizer::create(std::move(spec));
}

Result<Graph> build_graph(const LoadedModel& loaded, ComputeMode dtype, int64_t* context_max) {
  BOLIDE_TRY(const Family* family, find_family(loaded.config));
  log::debug("family", {{"name", std::string_view(family->name)}});
  BOLIDE_TRY(const DecoderSpec spec, family->parse(loaded.config));
  if (context_max != nullptr) *context_max = spec.context_max;
  return build_decoder(spec, *family, *loaded.weights, dtype);
}

namespace {

// Threads that wait for each other at every step are slow where many share a core.
void report_crowd(const DeviceInfo& device) {
  constexpr int kThreadsPerCore = 4;
  if (device.threads > kThreadsPerCore * device.cpu.cores())
    log::warning("far more threads than cores: they will wait for each other",
                 {{"threads", device.threads}, {"cores", device.cpu.cores()}});
}

}  // namespace

Result<std::unique_ptr<Device>> make_device(const ModelOptions& options) {
  if (options.device == DeviceKind::kCpu) {
    BOLIDE_TRY(auto device, make_cpu_device(options.threads, options.isa));
    report_crowd(device->info());
    return device;
  }
  CudaOptions cuda = options.cuda;
  cuda.threads = options.threads;
  return make_cuda_device(cuda);
}

const KernelRegistry& kernels_for(const ModelOptions& options) {
  if (options.device == DeviceKind::kCpu) return options.deterministic ? batch_invariant_cpu_kernels() : cpu_kernels();
  static const KernelRegistry kInvariant(cuda_kernels(), [](const Kernel& kernel) { return kernel.batch_invariant; });
  return options.deterministic ? kInvariant : cuda_kernels();
}

Result<> fit_weights_to_device(LoadedModel& loaded, const ModelOptions& options) {
  const bool rounds = options.dtype == ComputeMode::kAuto || options.dtype == ComputeMode::kBF16;
  if (options.device == DeviceKind::kCpu || !rounds) return {};
  BOLIDE_TRY(const Family* family, find_family(loaded.config));
  // Scores of experts are close to each other, and which are best is all or nothing.
  const WeightRule* router = find_rule(*family, Slot::kRouter);
  std::string ending = router != nullptr ? std::string(router->module) + ".weight" : "";
  if (const size_t layer = ending.rfind('}'); layer != std::string::npos) ending.erase(0, layer + 1);
  loaded.weights = round_to_bf16(std::move(loaded.weights),
                                 [&](const std::string& name) { return !ending.empty() && name.ends_with(ending); });
  return {};
}

Result<> fit_to_device(Graph& graph, const ModelOptions& options) {
  const bool gpu = options.device != DeviceKind::kCpu;
  for (const NodeId id : graph.order()) {
    Op& op = graph.node(id).op;
    auto* linear = std::get_if<Linear>(&op);
    auto* moe = std::get_if<MoeFfn>(&op);
    Compute* compute = linear != nullptr ? &linear->compute : moe != nullptr ? &moe->compute : nullptr;
    if (gpu && options.dtype == ComputeMode::kAuto && compute != nullptr) *compute = Compute::kBF16;
  }
  return graph.set_activations(gpu && options.dtype != ComputeMode::kF32 ? DType::kBF16 : DType::kF32);
}

Result<Prepared> prepare_checkpoint(const std::filesystem::path& path, const ModelOptions& options,
                                    const DeviceInfo& device) {
  BOLIDE_TRY(LoadedModel loaded, load_model(path, {options.config, /*any_family=*/false, options.threads}));
  BOLIDE_TRY(fit_weights_to_device(loaded, options));
  int64_t context_max = 0;
  BOLIDE_TRY(Graph graph, build_graph(loaded, options.dtype, &context_max));
  report_unused(graph, *loaded.weights);
  BOLIDE_TRY(fit_to_device(graph, options));
  const PassContext context{&kernels_for(options), &device};
  BOLIDE_TRY(std::vector<PassRecord> passes, run_passes(graph, default_passes(), context, options.skip_passes));
  for (const PassRecord& pass : passes)
    log::debug("pass", {{"name", pass.name}, {"rewrites", pass.rewrites}, {"ms", pass.ms}, {"skipped", pass.skipped}});
  return Prepared{std::move(loaded), std::move(graph), std::move(passes), {}, context_max};
}

RunnerOptions runner_options_of(const ModelOptions& options, int64_t context_max) {
  RunnerOptions runner;
  runner.context =
      options.context > 0 ? options.context : static_cast<int32_t>(std::min(context_max, kDefaultContextMax));
  runner.sequences = options.sequences;
  runner.cache_tokens = options.cache_tokens > 0
                            ? options.cache_tokens
                            : int64_t{runner.context} * std::clamp(options.cache_contexts, 0, options.sequences);
  // GPUs read all weights for a step: prompts go through in as few as may be.
  constexpr int32_t kTokensCpu = 512, kTokensGpu = 8192;
  const int64_t most = int64_t{runner.context} * options.sequences;
  const int32_t usual = options.device == DeviceKind::kCpu
                            ? kTokensCpu
                            : static_cast<int32_t>(std::clamp<int64_t>(most, kTokensCpu, kTokensGpu));
  runner.tokens_per_step = std::max(options.tokens_per_step != 0 ? options.tokens_per_step : usual, options.sequences);
  constexpr int32_t kBlockCpu = 16, kBlockGpu = 64;
  runner.block_tokens = options.block_tokens != 0            ? options.block_tokens
                        : options.device == DeviceKind::kCpu ? kBlockCpu
                                                             : kBlockGpu;
  runner.kv_dtype = options.kv_dtype;
  runner.deferred = options.deferred || options.device != DeviceKind::kCpu;
  return runner;
}

// A device that captures steps pads them to powers of two, so its limits are such.
SymbolValues limits_of(const RunnerOptions& options, int32_t rows_max) {
  const int64_t rows = rows_max > 0 ? rows_max : options.sequences;
  SymbolValues limits{{options.tokens_per_step, options.sequences, rows}};
  if (!options.deferred) return limits;
  const auto up = [](int64_t size) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size))); };
  limits[Symbol::kSequences] = up(options.sequences);
  limits[Symbol::kRows] = std::max(up(rows), limits[Symbol::kSequences]);
  limits[Symbol::kTokens] = std::max<int64_t>(options.tokens_per_step, limits[Symbol::kSequences]);
  return limits;
}

Result<WeightStore> make_weights(const Prepared& prepared, std::span<const WeightStore::Use> uses,
                                 const DeviceInfo& device, int* repacked,
                                 const FunctionRef<void(PackProgress)>* progress, WeightUpload* upload) {
  Workers workers(device.threads);
  *repacked = 0;
  const WeightSource* source = prepared.loaded.weights.get();
  const std::string label = source != nullptr ? source->label() : prepared.loaded.path.string();
  auto made = source != nullptr ? WeightStore::pack(prepared.graph, uses, *source, workers, progress, upload)
                                : WeightStore::adopt(prepared.graph, uses, prepared.packed, workers, repacked, upload);
  BOLIDE_TRY(WeightStore weights, std::move(made).context(label));
  weights.set_label(label);
  return weights;
}

namespace {

// A model that is read and checked, its weights still where the file has them.
struct Read {
  std::unique_ptr<Device> device;
  Prepared prepared;
  Tokenizer tokenizer;
  GraphFacts facts;
  int64_t context_max;
  RunnerOptions runner;
  PlanSet::Limits limits;
  std::vector<WeightStore::Use> uses;
};

// Only kernels of GPUs have tactics.
std::shared_ptr<const TimingCache> timings_of(const ModelOptions& options, const DeviceInfo& device) {
  const std::filesystem::path file = tuning_file(options, device);
  if (device.id.kind == DeviceKind::kCpu || file.empty()) return nullptr;
  return std::make_shared<const TimingCache>(TimingCache::read(file, tuning_fingerprint(device)));
}

// Tokens that `share` of the memory beside the weights holds: at least a context, at most one a sequence.
Result<int64_t> cache_tokens_of_share(const Read& read, double share, size_t weights) {
  RunnerOptions one = read.runner;
  one.sequences = 1, one.cache_tokens = 0;
  BOLIDE_TRY(const KvLayout layout, cache_layout(read.facts, one));
  uint64_t bytes = 0;
  BOLIDE_TRY(const size_t free, read.device->free_memory());
  if (!layout.bytes(&bytes) || free <= weights) return int64_t{one.context};  // KvCache::check says what is too large
  const double contexts = share * static_cast<double>(free - weights) / static_cast<double>(bytes);
  return static_cast<int64_t>(one.context * std::clamp(contexts, 1., static_cast<double>(read.runner.sequences)));
}

// The cache's memory and that of the packed weights: refused here, a request has cost nothing. Sizes the cache by what
// is free where the options say so.
Result<> plan_memory(Read& read, const ModelOptions& options) {
  const bool gpu = read.device->info().id.kind != DeviceKind::kCpu;
  const bool packs = read.prepared.loaded.weights != nullptr;
  size_t others = packs ? WeightStore::packed_bytes(read.prepared.graph, read.uses) : 0;
  if (gpu) others = WeightStore::device_bytes(read.prepared.graph, read.uses);
  if (gpu && options.cache_tokens == 0 && options.cache_share > 0) {
    BOLIDE_TRY(read.runner.cache_tokens, cache_tokens_of_share(read, options.cache_share, others));
  }
  BOLIDE_TRY(const KvLayout layout, cache_layout(read.facts, read.runner));
  return KvCache::check(layout, *read.device, others);
}

// The positions that the model was made for, with the rotary scaling that its configuration adds to those of training.
int64_t scaled_context(const ModelConfig& config, int64_t context_max) {
  const auto rope = config.rope();
  if (!rope || rope->type == RopeType::kDefault) return context_max;
  const double scaled = static_cast<double>(rope->original_context) * rope->factor;
  return std::max(context_max, static_cast<int64_t>(std::min(scaled, 1e15)));
}

Result<Read> read_model(const std::filesystem::path& path, const ModelOptions& options, const OutlineCheck* check) {
  BOLIDE_TRY(std::unique_ptr<Device> device, make_device(options));
  BOLIDE_TRY(Prepared prepared,
             is_engine(path) ? read_engine(path, options) : prepare_checkpoint(path, options, device->info()));
  if (!options.round_inputs) leave_inputs_alone(prepared.graph);
  BOLIDE_TRY(Tokenizer tokenizer, make_tokenizer(prepared.loaded).context(path.string()));
  BOLIDE_TRY(const GraphFacts facts, facts_of(prepared.graph).context(path.string()));
  BOLIDE_TRY(vocab_fits(tokenizer, facts.vocab, path.string()));
  const int64_t context_max = facts.positions > 0 ? facts.positions : prepared.context_max;
  if (facts.positions > 0 && options.context > facts.positions)
    return error(Code::kInvalid, fmt::format("{}: a context of {} tokens is asked for, but the model has learned "
                                             "positions for {} and cannot go beyond: ask for no more",
                                             path.string(), options.context, facts.positions));
  const RunnerOptions runner = runner_options_of(options, context_max);
  // A grid's second dimension has one row of blocks for each.
  constexpr int32_t kTokensPerStepGpuMax = 65535;
  if (options.device != DeviceKind::kCpu && runner.tokens_per_step > kTokensPerStepGpuMax)
    return error(Code::kInvalid,
                 fmt::format("{} tokens a step: at most {} on a GPU", runner.tokens_per_step, kTokensPerStepGpuMax));
  log::debug("model read",
             {{"file", std::string_view(path.native())},
              {"format", std::string_view(prepared.loaded.format)},
              {"tensors_from", prepared.loaded.weights != nullptr ? std::string_view(prepared.loaded.weights->label())
                                                                  : std::string_view(path.native())},
              {"processor", std::string_view(device->info().name)},
              {"isa", to_string(device->info().isa)},
              {"threads", device->info().threads},
              {"context", runner.context},
              {"vocabulary", facts.vocab}});
  if (const int64_t made_for = scaled_context(prepared.loaded.config, context_max); runner.context > made_for)
    log::warning("the context is longer than the model was made for: answers beyond may be poor",
                 {{"context", runner.context}, {"made_for", made_for}, {"model", std::string_view(path.native())}});
  if (check != nullptr) BOLIDE_TRY((*check)({prepared.loaded, tokenizer, facts.vocab, runner.context}));
  const PlanSet::Limits limits{limits_of(runner, options.rows_max)};
  auto uses = choose_packings(prepared.graph, kernels_for(options), device->info(), limits.sizes);
  if (!uses && prepared.loaded.weights == nullptr)  // an engine's graph is fused for the kind of device it was made for
    return std::move(uses).error().context(
        fmt::format("{}: an engine that was made for another kind of device; make one for this kind from the original "
                    "with bolide build MODEL --device {}",
                    path.string(), options.device == DeviceKind::kCpu ? "cpu" : "cuda"));
  if (!uses) return std::move(uses).error().context(path.string());
  return Read{std::move(device), std::move(prepared), std::move(tokenizer), facts, context_max, runner, limits,
              *std::move(uses)};
}

}  // namespace

Result<> outline_model(const std::filesystem::path& path, const ModelOptions& options, const OutlineCheck& check) {
  BOLIDE_TRY(Read read, read_model(path, options, &check));
  return plan_memory(read, options);
}

Result<PlanSet> outline_plans(const std::filesystem::path& path, const ModelOptions& options) {
  BOLIDE_TRY(Read read, read_model(path, options, nullptr));
  WeightStore weights = WeightStore::outline(read.prepared.graph, read.uses);
  return PlanSet::make(std::move(read.prepared.graph), std::move(weights), kernels_for(options), read.device->info(),
                       read.limits, timings_of(options, read.device->info()));
}

Result<Model> open_model(const std::filesystem::path& path, const ModelOptions& options,
                         const FunctionRef<void(PackProgress)>* progress, const OutlineCheck* check) {
  const auto start = Clock::now();
  BOLIDE_TRY(Read read, read_model(path, options, check));
  BOLIDE_TRY(plan_memory(read, options));
  auto& [device, prepared, tokenizer, facts, context_max, runner_options, limits, uses] = read;
  LoadedModel& loaded = prepared.loaded;
  const bool engine = loaded.weights == nullptr;

  const auto packing = Clock::now();
  int repacked = 0;
  std::optional<WeightUpload> upload;
  if (device->info().id.kind != DeviceKind::kCpu) {
    BOLIDE_TRY(upload, WeightUpload::make(*device));
  }
  BOLIDE_TRY(WeightStore weights, make_weights(prepared, uses, device->info(), &repacked, progress,
                                               upload.has_value() ? &*upload : nullptr));
  if (repacked > 0)
    log::warning("engine was made for another processor: replanned and repacked",
                 {{"weights", repacked}, {"processor", device->info().name}});
  BOLIDE_TRY(PlanSet plans, PlanSet::make(std::move(prepared.graph), std::move(weights), kernels_for(options),
                                          device->info(), limits, timings_of(options, device->info())));
  const auto done = Clock::now();
  log::debug("weights packed", {{"bytes", plans.weights().bytes()},
                                {"copies_bytes", plans.weights().anonymous_bytes()},
                                {"ms", ms_between(packing, done)}});
  BOLIDE_TRY(Runner runner, Runner::make(std::move(plans), runner_options, *device));

  std::vector<int32_t> stop_ids = stop_ids_of(loaded, tokenizer);
  const LoadTimes times{ms_between(start, packing), ms_between(packing, done), ms_between(start, Clock::now())};
  return Model{loaded.name,
               engine ? "engine" : loaded.format,
               loaded.config,
               loaded.generation,
               loaded.chat_template,
               loaded.chat_template_file,
               std::move(device),
               std::move(tokenizer),
               std::make_unique<Runner>(std::move(runner)),
               std::move(prepared.passes),
               std::move(stop_ids),
               context_max,
               times,
               repacked};
}

}  // namespace bolide
