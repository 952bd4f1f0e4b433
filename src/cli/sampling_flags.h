// Sampling by the names people know: a flag, else the checkpoint's generation_config.json, else greedy.
#pragma once

#include <string>
#include <vector>

#include "app/sampling.h"
#include "cli/flags.h"

namespace bolide::cli {

// Of --logit-bias flags, ID=VALUE each. Errors, kInvalid: others, values beyond -100 and 100.
Result<std::vector<TokenBias>> parse_logit_biases(const std::vector<std::string>& flags);

// Only flags that were given count as wishes.
SamplingParams choose_sampling(const Command& app, const SamplingFlags& flags, const GenerationConfig& config);

}  // namespace bolide::cli
