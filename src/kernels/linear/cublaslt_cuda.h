// Linear and QkvRope of many tokens on a GPU: a launch enqueues several kernels with workspace between them, and the
// product is cuBLASLt's. Inputs of the product are bf16 (a norm in front makes them so), sums f32.
//
//   x -> [RmsNorm] -> [rounding] -> product -> [act(gate) * up | rope of q and k, k and v into the cache]
//
// Tokens go through in slices where what lies between would be large. A tactic is a cublasLtMatmulAlgo_t.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

std::span<const Kernel> cublaslt_cuda_kernels();
// For tests: the same with slices of a few tokens.
std::span<const Kernel> cublaslt_cuda_kernels_sliced();

}  // namespace bolide
