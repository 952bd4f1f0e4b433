// What rope_cuda.cc and rope_cuda.cu share.
#pragma once

#include "kernels/common/cuda_target.h"

namespace bolide::cuda {

inline constexpr int kRopeHalfMax = 256;

// A RopeSpec as a kernel's parameter: captured graphs keep it.
struct RopeParameters {
  enum class Kind : uint8_t { kFixed, kDynamic, kLong } kind = Kind::kFixed;
  int half = 0;  // rotary_dim / 2; 0: nothing is rotated
  float attention_factor = 1, theta = 1, factor = 1;
  int64_t original_context = 0;
  // Of the batch, for the kinds that depend on a sequence's length.
  const int32_t* cu_tokens = nullptr;
  const int32_t* rope_length = nullptr;
  int sequences = 0;
  float inv_freq[kRopeHalfMax] = {};
  float inv_freq_long[kRopeHalfMax] = {};
};

// Pools [blocks, kv_heads, block_tokens, head_dim].
struct KvPools {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kNone;
  int block_tokens = 0, kv_heads = 0;
  const int64_t* slots = nullptr;  // null: nothing is stored
};

struct RopeWork {
  CudaMatrix q, out;  // data null: none
  CudaMatrix k, v;    // data null: none
  const int32_t* positions = nullptr;
  int64_t tokens = 0;
  int64_t first_token = 0;  // of the batch, if q, k, v, positions and slots begin there
  int head_dim = 0;
};

int rope(const CudaTarget& target, const RopeWork& work, const RopeParameters& parameters, const KvPools& pools);

}  // namespace bolide::cuda
