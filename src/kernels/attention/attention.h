// PagedAttention: causal attention over a paged cache.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, reference last. What is promised of equal bits: README.md.
std::span<const Kernel> attention_kernels();

}  // namespace bolide
