// What gemv_cuda.cc and the .cu files of products of few tokens share.
#pragma once

#include "kernels/act/act_cuda_parts.h"
#include "kernels/common/cuda_target.h"
#include "kernels/rope/rope_cuda_parts.h"

namespace bolide::cuda {

inline constexpr int kGemvTokensMax = 16;

enum class GemvFormat : uint8_t {
  kBF16,    // rows as the checkpoint has them
  kF8E4M3,  // the same, with a scale a row
  kInt8,    // the same
  kW4G128,  // gemv_layout.h
  kW4G32,
  kQ4_0,  // gemv_block_layout.h
  kQ4_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ8_0,
};

struct GemvWeight {
  GemvFormat format = GemvFormat::kBF16;
  const void* codes = nullptr;
  int64_t rows = 0, k = 0;
  int64_t row_bytes = 0;    // between two rows: a multiple of 16
  int64_t groups_from = 0;  // of pieces: bytes from a row's start to the constants of its groups
};

// x [T, K], T <= 16: RmsNorm if gain is set, product, scale, bias, then one of
//   kRows    + residual, stored
//   kHalves  act(first half of the rows) * second half
//   kHeads   rotary embedding of q and k; q stored, k and v into the cache
struct GemvWork {
  GemvWeight weight;
  CudaMatrix x;  // f32 with gain, bf16 without; rows 16-byte aligned
  const float* gain = nullptr;
  float eps = 0;
  const float* scale = nullptr;
  const float* token_scale = nullptr;  // [T], of x as it comes in; null: 1
  bool rounds = false;  // normalised x to codes of f8e4m3 times a scale a token: of formats that gemv_rounds() names
  const float* bias = nullptr;
  CudaMatrix residual;  // f32 or bf16; data null: none
  CudaMatrix out;       // f32 or bf16
  enum class Pairs : uint8_t { kRows, kHalves, kHeads } pairs = Pairs::kRows;
  Elementwise act = Elementwise::kSilu;
  // kHeads
  const int32_t* positions = nullptr;
  int heads = 0, head_dim = 0;
  KvPools pools;
  const RopeParameters* rope = nullptr;
};

// Formats whose products round x themselves, which goes through shared memory then.
constexpr bool gemv_rounds(GemvFormat format) { return format == GemvFormat::kF8E4M3; }
// True if x goes through shared memory, as a norm and rounding want: it must fit.
inline constexpr int64_t kGemvSharedXMax = 64 << 10;
inline bool gemv_shares_x(const GemvWork& work) {
  return work.gain != nullptr || work.rounds || work.x.rows * work.x.cols * 2 <= kGemvSharedXMax;
}

int gemv(const CudaTarget& target, const GemvWork& work);

// Up to kGemvChainMost products one after the other in one kernel, as if each were launched: all of one format and
// number of tokens, at most one of them kHeads, none of more x than kGemvChainXMax. Needs target.barriers: as many as
// products.
inline constexpr int kGemvChainMost = 6, kGemvChainTokensMax = 4;  // of more, products alone measured faster
inline constexpr int64_t kGemvChainXMax = 116 << 10;
// Formats whose chains measured faster than products alone.
constexpr bool gemv_chains(GemvFormat format) {
  return format == GemvFormat::kBF16 || format == GemvFormat::kF8E4M3 || format == GemvFormat::kW4G128;
}
int gemv_chain(const CudaTarget& target, const GemvWork* works, int count);

// Of their formats; gemv and gemv_chain choose.
int gemv_bf16(const CudaTarget& target, const GemvWork* works, int count);
int gemv_f8(const CudaTarget& target, const GemvWork* works, int count);
int gemv_int8(const CudaTarget& target, const GemvWork* works, int count);
int gemv_w4(const CudaTarget& target, const GemvWork* works, int count);
int gemv_q4(const CudaTarget& target, const GemvWork* works, int count);
int gemv_q45_k(const CudaTarget& target, const GemvWork* works, int count);
int gemv_q6_k(const CudaTarget& target, const GemvWork* works, int count);
int gemv_q8(const CudaTarget& target, const GemvWork* works, int count);

}  // namespace bolide::cuda
