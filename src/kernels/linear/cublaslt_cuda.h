// Linear and QkvRope of many tokens on a GPU: a launch enqueues several kernels with workspace between them, and the
// product is cuBLASLt's. Sums are f32.
//
//   x -> [RmsNorm] -> [rounding] -> product -> [act(gate) * up | rope of q and k, k and v into the cache]
//
// - bf16 weights: x is bf16 (a norm in front makes it so).
// - f8e4m3 whose input is rounded: norm and rounding are one kernel that makes codes and a scale for each token; the
//   product is of codes, scaled by token and row (beside sm_90 by a kernel behind), with f8's fast sums.
// - other codes and blocks: rows of the weight, times their scale, are rounded to bf16 (2^-9 of a weight at most) a
//   slice at a time; 4-bit weights come in pieces (gemv_layout.h).
// Up to 16 tokens decoding costs more than it saves: linear_parts_cuda has the products of last resort in its place.
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
