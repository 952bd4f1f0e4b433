// PagedAttention on a GPU: head dims up to 256, queries f32 or bf16, pools f32, bf16 or f8e4m3.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// A token beyond the last sequence, or of a sequence without cached tokens (padding of a bucket), gives zeros. The
// decode kernel's bits depend on the number of sequences too, and on how many tokens they may have; the other's on a
// token's query and cached tokens alone.
std::span<const Kernel> attention_cuda_kernels();

}  // namespace bolide
