// The likeliest tokens of a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler.h"

namespace bolide {

// The `count` likeliest, or as many as there are, likeliest first, of like ones the lower id. `log_total`: the
// logarithm of the sum of all exp(logit).
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count, double log_total);

}  // namespace bolide
