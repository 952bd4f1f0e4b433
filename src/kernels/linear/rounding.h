// What the attributes `compute` and `rounding` of Linear do to activations: the definition, in plain scalar code. Every
// kernel rounds to these bits, save that one in bf16 may multiply f8 codes as they are and scale the sums.
#pragma once

#include <cstdint>

#include "ir/ops.h"

namespace bolide {

inline constexpr int64_t kInt8Group = 32;  // activations along K that share an int8 scale

// One group of `count` <= kInt8Group activations: scale = max|x| / 127, code = x * (127 / max|x|) rounded to nearest
// even. A group whose maximum is below 2^-120 becomes zero. NaN or infinity in a group make its scale that, its
// codes 1. Codes beyond count are not written.
float round_group_int8(const float* x, int64_t count, int8_t* codes);

// x' = s f8e4m3(clamp(x / s)), s = max(max|x| / 448, 2^-23), over one token. May be in place.
void round_token_f8(const float* x, int64_t k, float* out);

// Applies both attributes to one token; the result as the numbers that enter the product.
void round_token(Compute compute, InputRounding rounding, const float* x, int64_t k, double* out);

}  // namespace bolide
