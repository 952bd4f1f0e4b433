// Model: a path in, something that answers out. Loads any format, builds the graph, runs the passes, plans, packs,
// makes the cache: what run, bench, profile, eval and the C++ API start from.
//
// Thread rules: one thread per Model.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "engine/generator.h"
#include "load/load.h"
#include "models/decoder.h"
#include "passes/pass.h"

namespace bolide {

struct ModelOptions {
  std::filesystem::path config;  // read in place of the folder's config.json
  DeviceKind device = DeviceKind::kCpu;
  CudaOptions cuda;        // for DeviceKind::kCuda; its threads are those below
  int threads = 0;         // 0: the cores this cgroup may use
  std::optional<Isa> isa;  // a lower level than the processor has
  ComputeMode dtype = ComputeMode::kAuto;
  int32_t context = 0;  // tokens a sequence may hold; 0: the model's own, at most 4096
  int32_t sequences = 1;
  int64_t cache_tokens = 0;    // that all sequences together may hold; 0: as the next says
  int32_t cache_contexts = 0;  // full contexts that the cache holds; 0: one a sequence
  // On GPUs in place of `cache_contexts`: share of the memory beside the weights that the cache takes, at least one
  // full context and at most one a sequence; 0: `cache_contexts` there too.
  double cache_share = 0;
  int32_t tokens_per_step = 0;  // 0: 512, on GPUs 8192
  int32_t rows_max = 0;         // logits of a step; 0: one a sequence
  int32_t block_tokens = 0;     // 0: 16, on GPUs 64
  DType kv_dtype = DType::kBF16;
  bool deferred = false;       // RunnerOptions::deferred, which GPUs always have
  bool deterministic = false;  // only kernels whose arithmetic does not depend on the tokens of a step
  std::set<std::string> skip_passes;
  // False: inputs of Linears that the checkpoint wants rounded (compressed-tensors fp8) are left alone, which shows
  // the weights by themselves.
  bool round_inputs = true;
  bool verify = false;                 // engines: check the weights' checksums too
  std::filesystem::path tuning_cache;  // empty: tuning_file's own place
};

struct LoadTimes {
  double read_ms = 0;  // files, tokenizer, graph, passes
  double pack_ms = 0;  // weights
  double total_ms = 0;
};

struct Model {
  std::string name;
  std::string format;  // "gguf", "safetensors", "synth", "engine"
  ModelConfig config;
  GenerationConfig generation;
  std::string chat_template;       // Jinja, or empty
  std::string chat_template_file;  // that it is from
  std::unique_ptr<Device> device;
  Tokenizer tokenizer;
  std::unique_ptr<Runner> runner;
  std::vector<PassRecord> passes;
  std::vector<int32_t> stop_ids;  // all end-of-text ids
  int64_t context_max = 0;        // the model's own
  LoadTimes times;
  int repacked = 0;  // weights of an engine that this processor wants in another layout
};

// What is known of a model before its weights are packed.
struct ModelOutline {
  const LoadedModel& loaded;
  const Tokenizer& tokenizer;
  int64_t vocab = 0;    // of the logits
  int32_t context = 0;  // tokens that a sequence may hold
};
// Sees the outline; its error ends the opening there: what cannot be answered should cost neither the time nor the
// memory of the weights.
using OutlineCheck = FunctionRef<Result<>(const ModelOutline&)>;

// Opens a GGUF file, a Hugging Face folder, a generated model ("synth:NAME") or an engine. Errors are for the user:
// which file, what, and the remedy.
Result<Model> open_model(const std::filesystem::path& path, const ModelOptions& options,
                         const FunctionRef<void(PackProgress)>* progress = nullptr,
                         const OutlineCheck* check = nullptr);

// Everything that open_model does before it packs weights, and `check`.
Result<> outline_model(const std::filesystem::path& path, const ModelOptions& options, const OutlineCheck& check);

// The plans that open_model would make, without the weights' bytes and whether or not memory suffices for them: to look
// at, not to run.
Result<PlanSet> outline_plans(const std::filesystem::path& path, const ModelOptions& options);

// The graph of a loaded checkpoint, before any pass; and how many positions it was made for.
Result<Graph> build_graph(const LoadedModel& loaded, ComputeMode dtype, int64_t* context_max = nullptr);

// Where the choices measured on this device are: of options.tuning_cache, else in the user's cache folder (empty if the
// user has none).
std::filesystem::path tuning_file(const ModelOptions& options, const DeviceInfo& device);

// The device that the options name. Errors are those of make_cpu_device and make_cuda_device.
Result<std::unique_ptr<Device>> make_device(const ModelOptions& options);

Result<Tokenizer> make_tokenizer(const LoadedModel& loaded);

}  // namespace bolide
