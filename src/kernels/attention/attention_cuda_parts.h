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

// Query heads of a kv head that attention_prompt takes.
inline constexpr int kPromptGroupMax = 64;
// For compute capability 9.0: q and out bf16, rows whole 16 bytes apart; head_dim 64, 96 or 128; pools bf16 or
// f8e4m3 that start at a multiple of 16 bytes; block_tokens 16, 32, 64 or a multiple of 128. Right for any tokens, fast
// for many a sequence.
int attention_prompt_bf16(const CudaTarget& target, const AttentionWork& work);
int attention_prompt_f8(const CudaTarget& target, const AttentionWork& work);

}  // namespace bolide::cuda
