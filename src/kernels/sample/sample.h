// Sample: one token a row of logits, by the batch's SamplingRow.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, reference last. Candidates are ordered by adjusted logit (biases, then penalties), largest first, then
// by id; every filter keeps a prefix of that order:
//   top_k  those that are at least the k-th largest logit (ties with it stay, as in transformers)
//   top_p  the fewest whose probabilities, renormalised after top_k, add up to top_p; at least one
//   min_p  those at least min_p times as probable as the first
// The draw takes the first candidate at which the cumulative probability passes a uniform number made from (seed,
// request, position). The log-probability is that of the raw logits, before biases, penalties and temperature.
// Where a logit is NaN or +infinity or all are -infinity (as they are or with biases), the token is -1 and its
// log-probability NaN.
std::span<const Kernel> sample_kernels();

}  // namespace bolide
