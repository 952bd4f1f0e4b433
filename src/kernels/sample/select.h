// Sampling without sorting the vocabulary, over the row functions of one instruction set.
#pragma once

#include "kernels/kernel.h"
#include "kernels/sample/sample_isa.h"

namespace bolide::sample {

size_t select_workspace(int64_t vocabulary, int threads);

Result<> select(const isa::SampleFunctions& functions, const Launch& launch, Stream& stream);

}  // namespace bolide::sample
