// What a launch tells the rope kernel of rope_cuda.cu: for *_cuda.cc files.
#pragma once

#include "kernels/kernel.h"
#include "kernels/rope/rope_cuda_parts.h"

namespace bolide::rope {

bool fits_cuda(const RopeSpec& spec);
cuda::RopeParameters parameters_of(const RopeSpec& spec, const BatchInputs* batch);
// Of the layer's cache; aborts if it is not of this shape.
cuda::KvPools pools_of(const Launch& launch, int64_t layer, int64_t kv_heads, int64_t head_dim);

}  // namespace bolide::rope
