// Engines: a checkpoint planned and packed once, in a file that is mapped and ready. A cache, never a gate: every
// command takes the checkpoint itself too.
//
// What is in one (sections of formats/engine_file.h): `about`, `config`, `generation`, `template`, `tokenizer` (the
// same assets that the checkpoint has), `graph` (text, after the passes), `weights` (a list), and one section a weight.
#pragma once

#include <filesystem>

#include "app/model.h"

namespace bolide {

// A model on its way to a Runner: from a checkpoint (weights still to be packed) or from an engine (packed).
struct Prepared {
  LoadedModel loaded;  // of an engine: without `weights`
  Graph graph;
  std::vector<PassRecord> passes;
  std::vector<StoredWeight> packed;
  int64_t context_max = 0;  // positions the model was made for
};

// True if the file at `path` begins like an engine.
bool is_engine(const std::filesystem::path& path);

// Checksums of everything but weights are checked always, those of weights if options.verify. options.dtype other than
// auto overrides the arithmetic that the engine was built for, and so does a device of another kind.
Result<Prepared> read_engine(const std::filesystem::path& path, const ModelOptions& options);

struct EngineReport {
  int weights = 0;
  uint64_t bytes = 0;
};

// Reads a checkpoint, plans and packs it for this processor and writes the engine.
Result<EngineReport> build_engine(const std::filesystem::path& model, const std::filesystem::path& engine,
                                  const ModelOptions& options,
                                  const FunctionRef<void(PackProgress)>* progress = nullptr);

// The kernels that these options allow.
const KernelRegistry& kernels_for(const ModelOptions& options);
// Takes the rounding of inputs that the checkpoint asks for out of the graph (ModelOptions::round_inputs).
void leave_inputs_alone(Graph& graph);

// Matrices that products read, in the type of the device: on a GPU f32 and f16 become bf16 when they are opened, unless
// exact arithmetic is asked for. Norms, biases, scales and the router of experts stay as they are.
Result<> fit_weights_to_device(LoadedModel& loaded, const ModelOptions& options);
// Makes arithmetic and activations those of the device: on a GPU bf16 activations unless f32 is asked for, and products
// in bf16, where a processor would choose by the type of a weight.
Result<> fit_to_device(Graph& graph, const ModelOptions& options);

// The steps that open_model and build_engine share (model.cc).
Result<Prepared> prepare_checkpoint(const std::filesystem::path& path, const ModelOptions& options,
                                    const DeviceInfo& device);
// The weights in the layouts of `uses` (choose_packings), on the host or through `upload`.
Result<WeightStore> make_weights(const Prepared& prepared, std::span<const WeightStore::Use> uses,
                                 const DeviceInfo& device, int* repacked,
                                 const FunctionRef<void(PackProgress)>* progress, WeightUpload* upload = nullptr);

}  // namespace bolide
