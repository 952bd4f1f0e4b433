// The pieces that sample.cc puts into the list, and what they share.
#pragma once

#include "kernels/kernel.h"

namespace bolide::sample {

Result<> sample_ref(const Launch& launch, Stream& stream);

// Biases, then the repetition penalty over the history, then presence and frequency penalties over its generated part,
// in place. counts [V]: arbitrary before and after. Ids outside the vocabulary are passed over; penalised scores stay
// finite.
void adjust(const SamplingRow& row, int64_t vocabulary, float* scores, int32_t* counts);

// Aborts unless there is a SamplingRow for each row of logits.
void check_rows(const Launch& launch);

}  // namespace bolide::sample
