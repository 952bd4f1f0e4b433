// Activation functions on a GPU.
#pragma once

#include "kernels/act/act_cuda_parts.h"
#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda {

// kRounded: the result is rounded to 16 bits, so that an error of 2^-21 of it does not count.
template <Elementwise kFunction, bool kRounded = false>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kFunction == Elementwise::kSilu) {
    return kRounded ? __fdividef(x, 1.f + __expf(-x)) : x / (1.f + expf(-x));
  } else if constexpr (kFunction == Elementwise::kGelu) {
    return x * normcdff(x);
  } else if constexpr (kFunction == Elementwise::kGeluTanh) {  // 0.5 x (1 + tanh y) = x / (1 + exp(-2 y))
    return x / (1.f + expf(-x * fmaf(x * x, 0.0713548162726f, 1.5957691216057f)));
  } else {
    return x < 0.f ? 0.f : x;
  }
}

__device__ __forceinline__ float activate(Elementwise function, float x) {
  switch (function) {
    case Elementwise::kSilu: return activate<Elementwise::kSilu>(x);
    case Elementwise::kGelu: return activate<Elementwise::kGelu>(x);
    case Elementwise::kGeluTanh: return activate<Elementwise::kGeluTanh>(x);
    default: return activate<Elementwise::kRelu>(x);
  }
}

}  // namespace bolide::cuda
