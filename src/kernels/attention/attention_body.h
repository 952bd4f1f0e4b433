// Online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867) over tiles of 64 keys, as FlashAttention does (Dao et
// al. 2022, arXiv:2205.14135).
//
// A tile's keys are transposed so that lanes are keys for the scores; for the weighted sums lanes are columns of the
// values. Both products run the same register tile: 6 query rows by 64 (AVX-512) or 16 (AVX2) columns. Many rows: keys
// and values are widened to f32 once a tile. Few rows (decode): they stay bf16 and are widened as they are used, which
// gives the same bits. Bound: FMA with many rows, reading the cache with few.
#pragma once

#include "kernels/attention/attention_isa.h"
#include "kernels/simd/math.h"
#include "kernels/simd/row.h"

namespace bolide {
namespace {

using isa::AttentionScratch;
using isa::AttentionState;
using isa::AttentionTask;
using isa::kColumnStep;
using isa::kKeyTile;

constexpr int kTileRows = 6;
constexpr int kTileVectors = kRegisters == 32 ? 4 : 2;
// Up to so many query rows use bf16 operands directly.
constexpr int64_t kFewRows = 8;
constexpr float kNothing = -__builtin_inff();

// Right operands of the products: get(i, u, column) is row i * kStep + u of it.
struct WideRows {
  static constexpr int kStep = 1;
  const float* data;
  int64_t stride;
  BOLIDE_INLINE Vec get(int64_t i, int, int64_t column) const { return load(data + i * stride + column); }
};
struct KeyPairs {  // words of two bf16 [k / 2, kKeyTile]
  static constexpr int kStep = 2;
  const uint32_t* data;
  BOLIDE_INLINE Vec get(int64_t i, int u, int64_t column) const {
    const IntVec words = load_words(data + i * kKeyTile + column);
    return u == 0 ? low_bf16(words) : high_bf16(words);
  }
};
struct NarrowRows {  // bf16 rows wherever they lie
  static constexpr int kStep = 1;
  const uint16_t* data;
  const int64_t* elements;
  BOLIDE_INLINE Vec get(int64_t i, int, int64_t column) const { return load_bf16(data + elements[i] + column); }
};

// c [kRows, kVectors * kLanes] (+)= a [kRows, k] b [k, ...]: one chain of fused multiply-adds an element, k ascending.
template <int kRows, int kVectors, bool kAdd, class B>
void product_tile(const float* a, int64_t a_stride, B b, int64_t column, int64_t k, float* c, int64_t c_stride) {
  Vec sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = kAdd ? load(c + r * c_stride + v * kLanes) : zero();
  for (int64_t i = 0; i < k / B::kStep; ++i)
#pragma GCC unroll 2
    for (int u = 0; u < B::kStep; ++u) {
      Vec row[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) row[v] = b.get(i, u, column + v * kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const Vec x = set(a[r * a_stride + i * B::kStep + u]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(x, row[v], sums[r][v]);
      }
    }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(c + r * c_stride + v * kLanes, sums[r][v]);
}

template <int kVectors, bool kAdd, class B>
void product_rows(const float* a, int64_t a_stride, int64_t rows, B b, int64_t column, int64_t k, float* c,
                  int64_t c_stride) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows)
    product_tile<kTileRows, kVectors, kAdd>(a + r * a_stride, a_stride, b, column, k, c + r * c_stride, c_stride);
  a += r * a_stride, c += r * c_stride;
  switch (rows - r) {
    case 1: return product_tile<1, kVectors, kAdd>(a, a_stride, b, column, k, c, c_stride);
    case 2: return product_tile<2, kVectors, kAdd>(a, a_stride, b, column, k, c, c_stride);
    case 3: return product_tile<3, kVectors, kAdd>(a, a_stride, b, column, k, c, c_stride);
    case 4: return product_tile<4, kVectors, kAdd>(a, a_stride, b, column, k, c, c_stride);
    case 5: return product_tile<5, kVectors, kAdd>(a, a_stride, b, column, k, c, c_stride);
    default: return;
  }
}

// c [rows, columns] (+)= a [rows, k] b [k, columns]; columns a multiple of kColumnStep.
template <bool kAdd, class B>
void product(const float* a, int64_t a_stride, int64_t rows, B b, int64_t k, float* c, int64_t c_stride,
             int64_t columns) {
  constexpr int64_t kWidth = kTileVectors * kLanes;
  int64_t j = 0;
  for (; j + kWidth <= columns; j += kWidth)
    product_rows<kTileVectors, kAdd>(a, a_stride, rows, b, j, k, c + j, c_stride);
  if constexpr (kTileVectors == 4) {
    switch ((columns - j) / kLanes) {
      case 1: return product_rows<1, kAdd>(a, a_stride, rows, b, j, k, c + j, c_stride);
      case 2: return product_rows<2, kAdd>(a, a_stride, rows, b, j, k, c + j, c_stride);
      case 3: return product_rows<3, kAdd>(a, a_stride, rows, b, j, k, c + j, c_stride);
      default: return;
    }
  }
}

// Elements of positions [begin, begin + count) in the pools.
void find_elements(const AttentionTask& task, int64_t begin, int64_t count, int64_t* elements) {
  int64_t block = begin / task.block_tokens, offset = begin % task.block_tokens;
  for (int64_t i = 0; i < count; ++block, offset = 0) {
    int64_t element = task.blocks[block] * task.block_stride + task.head_offset + offset * task.head_dim;
    for (; offset < task.block_tokens && i < count; ++offset, ++i, element += task.head_dim) elements[i] = element;
  }
}

float widen(uint16_t h) {
  const uint32_t wide = static_cast<uint32_t>(h) << 16;
  float f;
  __builtin_memcpy(&f, &wide, sizeof f);
  return f;
}

// Rows of `words` 32-bit words at base + elements[i] * element_bytes, i < count, become columns of out, by
// put(word, first key, words of kLanes keys). Keys from count on are zeros.
template <class Put>
BOLIDE_INLINE void transpose_rows(const char* base, int64_t element_bytes, const int64_t* elements, int64_t count,
                                  int64_t words, Put&& put) {
  for (int64_t key = 0; key < count; key += kLanes)
    for (int64_t word = 0; word < words; word += kLanes) {
      const int64_t n = words - word < kLanes ? words - word : static_cast<int64_t>(kLanes);
      IntVec r[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (key + i >= count) {
          r[i] = IntVec{};
          continue;
        }
        const auto* row = reinterpret_cast<const uint32_t*>(base + elements[key + i] * element_bytes) + word;
        r[i] = n == kLanes ? load_words(row) : load_words_n(row, n);
      }
      transpose(r);
      for (int i = 0; i < n; ++i) put(word + i, key, r[i]);
    }
}

// keys [head_dim, kKeyTile] f32, columns up to the next multiple of kColumnStep.
void pack_keys(const AttentionTask& task, const int64_t* elements, int64_t count, float* keys) {
  const auto* base = static_cast<const char*>(task.k);
  if (count % kColumnStep != 0)  // a partial vector of lanes may end before the step does
    for (int64_t d = 0; d < task.head_dim; ++d)
      for (int64_t j = count; j % kColumnStep != 0; ++j) keys[d * kKeyTile + j] = 0;
  if (!task.bf16) {
    transpose_rows(base, 4, elements, count, task.head_dim, [&](int64_t d, int64_t key, IntVec words) {
      store_words(reinterpret_cast<uint32_t*>(keys) + d * kKeyTile + key, words);
    });
  } else if (task.head_dim % 2 == 0) {
    transpose_rows(base, 2, elements, count, task.head_dim / 2, [&](int64_t pair, int64_t key, IntVec words) {
      store(keys + 2 * pair * kKeyTile + key, low_bf16(words));
      store(keys + (2 * pair + 1) * kKeyTile + key, high_bf16(words));
    });
  } else {
    for (int64_t j = 0; j < count; ++j)
      for (int64_t d = 0; d < task.head_dim; ++d)
        keys[d * kKeyTile + j] = widen(static_cast<const uint16_t*>(task.k)[elements[j] + d]);
  }
}

// A decode reads each key and value once, from wherever pages lie: those of the next tile are asked for while this one
// is worked on, kColumnStep rows at a time, since no more reads than that are in flight.
void fetch_rows(const void* pool, int64_t head_dim, const int64_t* elements, int64_t begin, int64_t count) {
  for (int64_t j = begin; j < begin + kColumnStep && j < count; ++j)
    for (int64_t d = 0; d < head_dim; d += 32)
      _mm_prefetch(static_cast<const uint16_t*>(pool) + elements[j] + d, _MM_HINT_T1);
}

// keys as KeyPairs; head_dim is even.
void pack_key_pairs(const AttentionTask& task, const int64_t* elements, int64_t count, const int64_t* next,
                    int64_t next_count, uint32_t* keys) {
  for (int64_t pair = 0; pair < task.head_dim / 2 && count % kColumnStep != 0; ++pair)
    for (int64_t j = count; j % kColumnStep != 0; ++j) keys[pair * kKeyTile + j] = 0;
  for (int64_t key = 0; key < count; key += kColumnStep) {
    fetch_rows(task.k, task.head_dim, next, key, next_count);
    fetch_rows(task.v, task.head_dim, next, key, next_count);
    const int64_t n = count - key < kColumnStep ? count - key : kColumnStep;
    transpose_rows(
        static_cast<const char*>(task.k), 2, elements + key, n, task.head_dim / 2,
        [&](int64_t pair, int64_t j, IntVec words) { store_words(keys + pair * kKeyTile + key + j, words); });
  }
}

// values [count, padded_dim] f32, zeros beyond head_dim.
void pack_values(const AttentionTask& task, const int64_t* elements, int64_t count, float* values) {
  for (int64_t j = 0; j < count; ++j) {
    float* out = values + j * task.padded_dim;
    const int64_t element = elements[j];
    for_row(task.head_dim, [&](int64_t d, int64_t n) {
      if (task.bf16) {
        const uint16_t* row = static_cast<const uint16_t*>(task.v) + element + d;
        store(out + d, n == kLanes ? load_bf16(row) : load_bf16_n(row, n));
      } else {
        store(out + d, load_some(static_cast<const float*>(task.v) + element + d, n));
      }
    });
    const int64_t filled = (task.head_dim + kLanes - 1) / kLanes * kLanes;
    for (int64_t d = filled; d < task.padded_dim; d += kLanes) store(out + d, zero());
  }
}

void scale_state(const AttentionState& state, int64_t row, int64_t padded_dim, Vec by) {
  float* totals = state.totals + row * kColumnStep;
  store(totals, load(totals) * by);
  float* sums = state.sums + row * padded_dim;
  for (int64_t d = 0; d < padded_dim; d += kLanes) store(sums + d, load(sums + d) * by);
}

BOLIDE_INLINE Vec capped(Vec score, float softcap) { return set(softcap) * tanh(score / set(softcap)); }

// Turns one row of scores into weights relative to its new largest score; lanes outside [lo, hi) have weight 0.
void softmax_row(const AttentionTask& task, const AttentionState& state, int64_t row, int64_t lo, int64_t hi,
                 int64_t columns) {
  float* scores = task.scratch.scores + row * kKeyTile;
  Vec most = set(kNothing);
  const bool partial = lo > 0 || hi < columns;
  for (int64_t j = 0; j < columns; j += kLanes) {
    Vec x = load(scores + j) * set(task.scale);
    if (task.softcap > 0) x = capped(x, task.softcap);
    if (partial) x = within(x, set(kNothing), lo - j, hi - j);
    store(scores + j, x);
    most = max(most, x);
  }
  const float before = state.largest[row], tile = largest(most);
  const float now = tile > before ? tile : before;
  if (now == kNothing) {
    for (int64_t j = 0; j < columns; j += kLanes) store(scores + j, zero());
    return;
  }
  if (now > before) {
    state.largest[row] = now;
    if (before != kNothing) scale_state(state, row, task.padded_dim, exp(set(before - now)));
  }
  float* totals = state.totals + row * kColumnStep;
  Vec total = load(totals);
  for (int64_t j = 0; j < columns; j += kLanes) {
    const Vec weight = exp(load(scores + j) - set(now));
    store(scores + j, weight);
    total = total + weight;
  }
  store(totals, total);
}

BOLIDE_INLINE int64_t tile_count(int64_t tile, int64_t end) { return end - tile < kKeyTile ? end - tile : kKeyTile; }

void attend(const AttentionTask& task, const AttentionState& state) {
  for (int64_t r = 0; r < task.rows; ++r) {
    state.largest[r] = kNothing;
    for (int64_t i = 0; i < kColumnStep; i += kLanes) store(state.totals + r * kColumnStep + i, zero());
    for (int64_t d = 0; d < task.padded_dim; d += kLanes) store(state.sums + r * task.padded_dim + d, zero());
  }
  const AttentionScratch& scratch = task.scratch;
  const bool few = task.rows <= kFewRows && task.bf16 && task.head_dim % kColumnStep == 0;
  int64_t *elements = scratch.elements, *next = scratch.elements + kKeyTile;
  find_elements(task, task.begin, tile_count(task.begin, task.end), elements);
  for (int64_t tile = task.begin; tile < task.end; tile += kKeyTile) {
    const int64_t count = tile_count(tile, task.end);
    const int64_t columns = (count + kColumnStep - 1) / kColumnStep * kColumnStep;
    const int64_t next_count =
        tile + kKeyTile < task.next_end ? tile_count(tile + kKeyTile, task.next_end) : int64_t{0};
    find_elements(task, tile + kKeyTile, next_count, next);
    if (few) {
      auto* pairs = reinterpret_cast<uint32_t*>(scratch.keys);
      pack_key_pairs(task, elements, count, next, next_count, pairs);
      product<false>(task.q, task.head_dim, task.rows, KeyPairs{pairs}, task.head_dim, scratch.scores, kKeyTile,
                     columns);
    } else {
      pack_keys(task, elements, count, scratch.keys);
      product<false>(task.q, task.head_dim, task.rows, WideRows{scratch.keys, kKeyTile}, task.head_dim, scratch.scores,
                     kKeyTile, columns);
    }
    for (int64_t r = 0; r < task.rows; ++r)
      softmax_row(task, state, r, task.first[r] - tile, task.last[r] - tile, columns);
    if (few) {
      product<true>(scratch.scores, kKeyTile, task.rows, NarrowRows{static_cast<const uint16_t*>(task.v), elements},
                    count, state.sums, task.padded_dim, task.padded_dim);
    } else {
      pack_values(task, elements, count, scratch.values);
      product<true>(scratch.scores, kKeyTile, task.rows, WideRows{scratch.values, task.padded_dim}, count, state.sums,
                    task.padded_dim, task.padded_dim);
    }
    int64_t* used = elements;
    elements = next, next = used;
  }
}

void merge(const AttentionState& total, const AttentionState& part, int64_t rows, int64_t padded_dim) {
  for (int64_t r = 0; r < rows; ++r) {
    const float a = total.largest[r], b = part.largest[r];
    if (b == kNothing) continue;
    const float most = a > b ? a : b;
    // exp(-infinity) is 0: a total without positions becomes the part.
    const Vec old = exp(set(a - most)), added = exp(set(b - most));
    total.largest[r] = most;
    for (int64_t i = 0; i < kColumnStep; i += kLanes) {
      float* to = total.totals + r * kColumnStep + i;
      store(to, fma(load(part.totals + r * kColumnStep + i), added, load(to) * old));
    }
    for (int64_t d = 0; d < padded_dim; d += kLanes) {
      float* to = total.sums + r * padded_dim + d;
      store(to, fma(load(part.sums + r * padded_dim + d), added, load(to) * old));
    }
  }
}

void finish(const AttentionState& state, int64_t row, int64_t head_dim, int64_t padded_dim, float* out) {
  const Vec total = set(sum(load(state.totals + row * kColumnStep)));
  const float* sums = state.sums + row * padded_dim;
  for_row(head_dim, [&](int64_t d, int64_t n) { store_some(out + d, load(sums + d) / total, n); });
}

constexpr isa::AttentionFunctions kAttentionFunctions = {attend, merge, finish};

}  // namespace
}  // namespace bolide
