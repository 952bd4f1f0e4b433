// Packing of block-quantised weights into strips (strip_format.h), and what kernels must know to walk them.
#pragma once

#include "kernels/kernel.h"
#include "kernels/linear/strip_format.h"

namespace bolide {

struct StripScheme {
  const QuantScheme* quant;
  StripKind kind;
  int zero;  // code that stands for 0, in schemes without minima
};

// nullptr if strips do not hold this scheme.
const StripScheme* strip_scheme(const QuantScheme* quant);

StripShape strip_shape(const StripScheme& scheme, int64_t k);

// Strips of one matrix of n rows; a weight [X, N, K] is X matrices, each with strips of its own.
constexpr int64_t strips_of(int64_t n) { return (n + kStripRows - 1) / kStripRows; }

// "strips": any block scheme; unpack restores the blocks bit for bit.
extern const Packing kStripPacking;

}  // namespace bolide
