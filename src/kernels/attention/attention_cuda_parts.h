// What attention_cuda.cc and attention_cuda.cu share.
#pragma once

#include "kernels/common/cuda_target.h"

namespace bolide::cuda {

inline constexpr int kAttentionDimMax = 256;

struct AttentionWork {
  CudaMatrix q, out;  // [T, heads * head_dim]
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1, softcap = 0;
  int64_t window = 0;
  const void *k = nullptr, *v = nullptr;  // pools [blocks, kv_heads, block_tokens, head_dim]
  DType pool = DType::kNone;
  int block_tokens = 0;
  const int32_t* cu_tokens = nullptr;    // [sequences + 1]
  const int32_t* context = nullptr;      // [sequences]
  const int32_t* block_table = nullptr;  // [sequences, block_table_stride]
  int block_table_stride = 0, sequences = 0;
};

int attention(const CudaTarget& target, const AttentionWork& work);

}  // namespace bolide::cuda
