// Functions of attention_avx2.cc and attention_avx512.cc: attention of a tile of query rows over one split of the
// cached positions. See README.md for the order of sums.
#pragma once

#include <cstdint>

namespace bolide::isa {

// Keys whose scores are made together. Tiles start at multiples of it, so that the arithmetic of a row depends on its
// position alone.
inline constexpr int64_t kKeyTile = 64;
// Columns of the padded head dim are a multiple of this.
inline constexpr int64_t kColumnStep = 16;

// Softmax in progress, a row per query row.
struct AttentionState {
  float* largest;  // [rows] largest score; -infinity: no position seen
  float* totals;   // [rows, kColumnStep] partial sums of weights exp(score - largest)
  float* sums;     // [rows, padded_dim] weighted sums of values
};

struct AttentionScratch {
  float* scores;      // [rows, kKeyTile]
  float* keys;        // [head_dim, kKeyTile]
  float* values;      // [kKeyTile, padded_dim]
  int64_t* elements;  // [2, kKeyTile] of this tile and the next
};

struct AttentionTask {
  const float* q;  // [rows, head_dim]
  int64_t rows, head_dim, padded_dim;
  const int64_t *first, *last;  // [rows]: row r sees positions [first[r], last[r])
  int64_t begin, end;           // positions to go over; begin is a multiple of kKeyTile
  int64_t next_end;             // positions up to here will be asked for next: worth fetching
  const int32_t* blocks;  // position p is at element blocks[p / P] * block_stride + head_offset + p % P * head_dim
  int64_t block_tokens, block_stride, head_offset;
  const void *k, *v;
  bool bf16;  // else f32
  float scale, softcap;
  AttentionScratch scratch;
};

struct AttentionFunctions {
  // Fills the state with the softmax over the task's positions.
  void (*attend)(const AttentionTask& task, const AttentionState& state);
  // total becomes the softmax over both sets of positions.
  void (*merge)(const AttentionState& total, const AttentionState& part, int64_t rows, int64_t padded_dim);
  // out [head_dim] = the weighted mean of row `row`.
  void (*finish)(const AttentionState& state, int64_t row, int64_t head_dim, int64_t padded_dim, float* out);
};
extern const AttentionFunctions kAttentionAvx2, kAttentionAvx512;

}  // namespace bolide::isa
