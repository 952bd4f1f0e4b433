// Rope, RopeKvWrite and KvWrite.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, reference last. A rotated output may be its input's own memory. Keys and values are rounded to the
// pool's type, nearest even; slots below 0 are not stored.
std::span<const Kernel> rope_kernels();

// Frequencies [rotary_dim / 2] for a sequence of `length` tokens, as Hugging Face's transformers computes them for
// `rope.kind`; a constant function for kFixed.
void rope_frequencies(const RopeSpec& rope, int64_t length, float* frequencies);

}  // namespace bolide
