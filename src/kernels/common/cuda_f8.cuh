// f8e4m3 in GPU code: as tensor/half.h has it.
#pragma once

#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda {

struct F8E4M3 {
  uint8_t bits;
};

// The bits moved to where a half has them give the value times 2^-8.
__device__ __forceinline__ float widen(F8E4M3 v) {
  const uint32_t magnitude = v.bits & 0x7fu;
  const auto half = static_cast<uint16_t>((v.bits & 0x80u) << 8 | magnitude << 7);
  return magnitude == 0x7fu ? __int_as_float(0x7fc00000) : __fmul_rn(__half2float(__ushort_as_half(half)), 256.f);
}

// Rounds to nearest, ties to even; beyond 448 becomes 448.
template <>
__device__ __forceinline__ F8E4M3 narrow<F8E4M3>(float x) {
  const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  uint32_t code = 0x7eu;
  if (magnitude > 0x7f800000u) {
    code = 0x7fu;
  } else if (magnitude < 0x3c800000u) {  // below 2^-6: steps of 2^-9, the last bit of 2^14 and more
    code = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0x1p14f)) - 0x46800000u;
  } else if (magnitude < 0x43e00000u) {
    code = min((magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20, 0x7eu);
  }
  return {static_cast<uint8_t>(sign | code)};
}

// The same of two neighbours, the first in the low byte; a NaN may lose its sign.
__device__ __forceinline__ uint16_t narrow_f8_pair(float first, float second) {
  uint16_t pair;
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                    (asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));),
                    (pair = static_cast<uint16_t>(narrow<F8E4M3>(first).bits | narrow<F8E4M3>(second).bits << 8);))
  return pair;
}

}  // namespace bolide::cuda
