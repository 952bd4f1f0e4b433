// One step's data for kernels, plan and engine: plain views over fixed-address buffers. Who fills what: the engine
// fills everything before Executor::run; kernels only read it (and write the KV pools and sampling outputs).
//
// For kernels of a GPU every pointer here is to memory of the device: the arrays, the pools in KvLayer, `sampling`'s
// rows, their histories and biases. Host values are what launches are sized by: `sizes`, block_table_stride, the
// numbers in KvView, the span KvView::layers itself (of device pointers) and sampling's size.
#pragma once

#include <cstdint>
#include <span>

#include "ir/type.h"
#include "kernels/sampling_row.h"
#include "tensor/dtype.h"

namespace bolide {

// One layer's pools: k and v, each [blocks, G, P, D]. P tokens a block: with P = the whole context and one block a
// sequence the same kernels read a contiguous cache.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
};

struct KvView {
  DType dtype = DType::kBF16;  // kF32, kBF16 or kF8E4M3 (values beyond 448 are stored as 448)
  int32_t block_tokens = 16;   // P
  int32_t kv_heads = 0;        // G
  int32_t head_dim = 0;        // D
  std::span<const KvLayer> layers;

  // Elements between two blocks of one pool.
  int64_t block_stride() const { return int64_t{kv_heads} * block_tokens * head_dim; }
};

struct BatchInputs {
  const int32_t* ids = nullptr;          // [T]
  const int32_t* positions = nullptr;    // [T]
  const int32_t* rows = nullptr;         // [R] tokens whose logits are wanted, ascending
  const int32_t* cu_tokens = nullptr;    // [S + 1]: tokens of sequence s are [cu_tokens[s], cu_tokens[s + 1])
  const int32_t* context = nullptr;      // [S] cached tokens once this step's are written
  const int32_t* rope_length = nullptr;  // [S] length that decides dynamic and long rope; at least context
  const int32_t* block_table = nullptr;  // [S, block_table_stride] block numbers
  const int64_t* slots = nullptr;        // [T] block * P + offset at which the token's key and value are stored
  // [3] T, S, R without padding; null: there is none. Steps that are captured are padded to their bucket, and `sizes`
  // is that: a padding token belongs to a padding sequence of its own, has slot -1 (nothing is stored) and context 0
  // (attention gives zeros); a padding row names some token, and is sampled greedily.
  const int32_t* counts = nullptr;
  int32_t block_table_stride = 0;
  SymbolValues sizes;  // T, S, R
  KvView kv;
  std::span<const SamplingRow> sampling;  // [R], or empty if the plan has no Sample
};

}  // namespace bolide
