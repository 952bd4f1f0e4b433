// Random blocks of GGUF's types and of w4_* whose decoded values have a given scale.
#pragma once

#include "base/bytes.h"
#include "tensor/quant.h"

namespace bolide {

// Blocks `first`, first + 1, ... of the stream, for q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k and w4_*. The values
// have about this standard deviation and a mean near 0; codes of 4 and 8 bits are normally distributed, those of 5 and
// 6 bits uniformly. `first` is a multiple of 8; out has whole blocks.
void fill_blocks(uint64_t key, uint64_t first, const QuantScheme& scheme, float deviation, MutableBytes out);

}  // namespace bolide
