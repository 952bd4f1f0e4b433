// What sample_cuda.cc and sample_cuda.cu share.
#pragma once

#include "kernels/common/cuda_target.h"
#include "kernels/sampling_row.h"

namespace bolide::cuda {

// Rows that are sampled at the same time, each with its scratch; the others come after them.
inline constexpr int64_t kSampleSlots = 128;

// Scratch of one slot: [V] penalised scores and [V] counts or keys.
inline int64_t sample_slot_bytes(int64_t vocabulary) { return vocabulary * 8; }

// logits f32 [R, V] -> next [R], log_probability [R]. workspace: `slots` times sample_slot_bytes.
int sample(const CudaTarget& target, const CudaMatrix& logits, const SamplingRow* rows, void* workspace, int64_t slots,
           int32_t* next, float* log_probability);

}  // namespace bolide::cuda
