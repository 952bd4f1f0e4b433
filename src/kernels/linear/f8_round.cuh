// f32 to f8e4m3 and back, as tensor/half.h rounds: to nearest even, beyond 448 becomes 448.
#pragma once

#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda {

__device__ __forceinline__ float through_f8e4m3(float f) {
  const uint32_t bits = __float_as_uint(f), sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return f;
  if (size >= 0x43e00000u) return __uint_as_float(sign | 0x43e00000u);
  if (size < 0x3c800000u) {  // below 2^-6: steps of 2^-9, which adding 2^14 rounds to
    const float rounded = __fsub_rn(__fadd_rn(__uint_as_float(size), 16384.f), 16384.f);
    return __uint_as_float(sign | __float_as_uint(rounded));
  }
  const uint32_t rounded = (size + 0x7ffffu + ((size >> 20) & 1u)) & 0xfff00000u;
  return __uint_as_float(sign | (rounded > 0x43e00000u ? 0x43e00000u : rounded));
}

}  // namespace bolide::cuda
