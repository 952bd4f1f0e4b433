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
  DType pool = DType::kNone;              // kF32, kBF16 or kF8E4M3
  int block_tokens = 0;
  const int32_t* cu_tokens = nullptr;    // [sequences + 1]
  const int32_t* context = nullptr;      // [sequences]
  const int32_t* block_table = nullptr;  // [sequences, block_table_stride]
  int block_table_stride = 0, sequences = 0;
};

int attention(const CudaTarget& target, const AttentionWork& work);

// How attention_decode cuts up one token and kv head: among the warps of so many blocks, which are one cluster.
struct DecodeShape {
  int splits = 0;  // 1 to 16
  int warps = 0;   // of a block: up to 8, with more than 8 query heads a kv head up to 4
  int depth = 1;   // tiles that a warp has on their way: 1 or 2
};

// Query heads of a kv head that attention_decode takes.
inline constexpr int kDecodeGroupMax = 16;
// For compute capability 9.0: q bf16, rows of q and out whole 16 bytes apart; head_dim 64, 96 or 128; pools bf16 or
// f8e4m3 that start at a multiple of 16 bytes; block_tokens a power of two from 16 on. Right for any tokens, fast for
// one a sequence.
int attention_decode_bf16(const CudaTarget& target, const AttentionWork& work, DecodeShape shape);
int attention_decode_f8(const CudaTarget& target, const AttentionWork& work, DecodeShape shape);

// Query heads of a kv head that attention_prompt takes.
inline constexpr int kPromptGroupMax = 64;
// For compute capability 9.0: q and out bf16, rows whole 16 bytes apart; head_dim 64, 96 or 128; pools bf16 or
// f8e4m3 that start at a multiple of 16 bytes; block_tokens 16, 32, 64 or a multiple of 128. Right for any tokens, fast
// for many a sequence.
int attention_prompt_bf16(const CudaTarget& target, const AttentionWork& work);
int attention_prompt_f8(const CudaTarget& target, const AttentionWork& work);

}  // namespace bolide::cuda
