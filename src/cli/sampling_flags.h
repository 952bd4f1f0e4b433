// Sampling by the names people know: a flag, else the checkpoint's generation_config.json, else greedy.
#pragma once

#include "app/sampling.h"
#include "cli/flags.h"

namespace bolide::cli {

// Only flags that were given count as wishes.
SamplingParams choose_sampling(const Command& app, const SamplingFlags& flags, const GenerationConfig& config);

}  // namespace bolide::cli
