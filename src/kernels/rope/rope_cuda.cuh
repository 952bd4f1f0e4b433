// Angles of rotary embedding on a GPU, for kernels that rotate.
#pragma once

#include "kernels/common/cuda_launch.cuh"
#include "kernels/rope/rope_cuda_parts.h"

namespace bolide::cuda {

// Cosine and sine, absolute error below 1.2e-7, for |x| < 1e9: the angle modulo a quarter turn in f64, which leaves
// nothing of its size, then polynomials (those of kernels/simd/math.h) in f32.
__device__ __forceinline__ void cos_sin(float x, float* cosine, float* sine) {
  const double wide = x, turns = rint(wide * 0.63661977236758134);
  const auto r = static_cast<float>(fma(-turns, 6.123233995736766e-17, fma(-turns, 1.5707963267948966, wide)));
  const float z = r * r;
  float s = fmaf(-1.951723389e-04f, z, 8.332177997e-03f);
  s = fmaf(s, z, -1.666665524e-01f);
  s = fmaf(s * z, r, r);
  float c = fmaf(2.443837730e-05f, z, -1.388736651e-03f);
  c = fmaf(c, z, 4.166664556e-02f);
  c = fmaf(c, z * z, fmaf(-z, 0.5f, 1.f));
  const auto quadrant = static_cast<uint32_t>(__double2ll_rn(turns)) & 3u;
  const bool swap = (quadrant & 1u) != 0;
  const float first = swap ? s : c, second = swap ? c : s;
  *cosine = ((quadrant + 1) & 2u) != 0 ? -first : first;
  *sine = (quadrant & 2u) != 0 ? -second : second;
}

// The sequence that the token belongs to: the last that starts at or before it. Padding behind all of them: the last.
__device__ __forceinline__ int sequence_of(const int32_t* cu_tokens, int sequences, int token) {
  int low = 0, high = sequences;  // cu_tokens[low] <= token
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (cu_tokens[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Not inlined: f64 powers are long, and rare.
__device__ __noinline__ inline float dynamic_frequency(const RopeParameters& rope, int i, int length) {
  const double dims = 2. * rope.half;
  const double stretch =
      static_cast<double>(rope.factor) * length / static_cast<double>(rope.original_context) - (rope.factor - 1.);
  const double base = rope.theta * pow(stretch, dims / (dims - 2));
  return static_cast<float>(1 / pow(base, 2. * i / dims));
}

__device__ __forceinline__ float frequency(const RopeParameters& rope, int i, int length) {
  const bool beyond = length > rope.original_context;
  if (rope.kind == RopeParameters::Kind::kDynamic && beyond && rope.half > 1) return dynamic_frequency(rope, i, length);
  return rope.kind == RopeParameters::Kind::kLong && beyond ? rope.inv_freq_long[i] : rope.inv_freq[i];
}

}  // namespace bolide::cuda
