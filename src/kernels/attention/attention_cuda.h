// PagedAttention on a GPU: head dims up to 256, queries f32 or bf16, pools f32 or bf16.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// A token beyond the last sequence, or of a sequence without cached tokens (padding of a bucket), gives zeros. A
// token's bits depend on its query and its cached tokens alone.
std::span<const Kernel> attention_cuda_kernels();

}  // namespace bolide
