// Decoding of stored rows to float32: the definition of what every block scheme and float type means.
// Plain loops; kernels are checked against these. No allocation, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/quant.h"

namespace bolide {

// row: k / scheme.block_elements blocks, no alignment needed; k a multiple of scheme.block_elements; out [k].
// Products and sums are float32, in the order in which ggml's scalar code has them.
void decode_block_row(const QuantScheme& scheme, const std::byte* row, int64_t k, float* out);

// A row of a float type (F64 rounds to float32) or of int8 codes as they are, or of a block scheme if quant is not
// nullptr.
void decode_row(DType dtype, const QuantScheme* quant, const std::byte* row, int64_t k, float* out);

}  // namespace bolide
