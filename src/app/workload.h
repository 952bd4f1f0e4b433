// Workloads of bench and profile: prompts and decodes of random tokens on a Model, and what they must move and compute.
//
// Thread rules: the model's thread.
#pragma once

#include <vector>

#include "app/model.h"

namespace bolide {

struct WorkloadOptions {
  int32_t prompt = 512;    // tokens of a prompt; 0: none
  int32_t generate = 128;  // decode steps; 0: none
  int32_t batch = 1;       // sequences
  int32_t depth = 0;       // cached tokens before the decode (and before the prompt)
  uint64_t seed = 1;
};

// The context that the workload needs. Errors: options.context is set, and smaller.
Result<> size_context(const WorkloadOptions& workload, ModelOptions* options);

// Sees after each step of a prompt, or of the tokens beforehand, how many of all sequences' tokens are computed.
using WorkloadProgress = FunctionRef<void(int64_t done, int64_t all)>;

// Seconds of one prompt of each sequence, one after the other, to the first token of the last.
Result<double> run_prompt(Model& model, const WorkloadOptions& options, const StepObserver* observer = nullptr,
                          const WorkloadProgress* progress = nullptr);
// Seconds of `generate` steps of all sequences together.
Result<double> run_decode(Model& model, const WorkloadOptions& options, const StepObserver* observer = nullptr,
                          const WorkloadProgress* progress = nullptr);

// Bytes and FLOPs of one prompt of one sequence, and of one decode step of the batch at its mean context.
struct WorkloadCost {
  Cost prompt, decode;
};
Result<WorkloadCost> cost_of_workload(Model& model, const WorkloadOptions& options);

// Cost of one step of these sizes.
Cost cost_of_step(const Graph& graph, const SymbolValues& sizes, double context);

}  // namespace bolide
