// Tiling: 6 rows by 64 (AVX-512) or 16 (AVX2) columns of sums in registers; a step along k loads the panel's row and
// broadcasts 6 elements of a. Bound: FMA.
//
// Attention: keys and values of a head are packed into panels once for a block of queries; scores of up to kScoreRows
// queries lie in scratch (L2 for thousands of keys), are turned into weights there and multiplied with the values.
#pragma once

#include "kernels/panels/panels_isa.h"
#include "kernels/simd/math.h"
#include "kernels/simd/row.h"

namespace bolide {
namespace {

using isa::AttendTask;

constexpr int kTileRows = 6;
constexpr int kTileVectors = kRegisters == 32 ? 4 : 2;
constexpr int64_t kPanel = kTileVectors * kLanes;
constexpr float kNothing = -__builtin_inff();
constexpr int64_t kScoreRows = 48;
constexpr int64_t kScoreFloats = 64 << 10;

BOLIDE_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t up_to(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

template <int kRows>
void multiply_tile(const float* a, int64_t a_stride, const float* panel, int64_t k, Vec alpha, float* out,
                   int64_t out_stride, int64_t count) {
  Vec sums[kRows][kTileVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) sums[r][v] = zero();
  for (int64_t i = 0; i < k; ++i, panel += kPanel) {
    Vec row[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) row[v] = load(panel + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Vec x = set(a[r * a_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) sums[r][v] = fma(x, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      const int64_t left = count - v * kLanes;
      float* to = out + r * out_stride + v * kLanes;
      if (left >= kLanes)
        store(to, sums[r][v] * alpha);
      else if (left > 0)
        store_n(to, sums[r][v] * alpha, left);
    }
}

void multiply(const float* a, int64_t a_stride, int64_t rows, const float* panel, int64_t k, float alpha, float* out,
              int64_t out_stride, int64_t count) {
  const Vec by = set(alpha);
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows)
    multiply_tile<kTileRows>(a + r * a_stride, a_stride, panel, k, by, out + r * out_stride, out_stride, count);
  a += r * a_stride, out += r * out_stride;
  switch (rows - r) {
    case 1: return multiply_tile<1>(a, a_stride, panel, k, by, out, out_stride, count);
    case 2: return multiply_tile<2>(a, a_stride, panel, k, by, out, out_stride, count);
    case 3: return multiply_tile<3>(a, a_stride, panel, k, by, out, out_stride, count);
    case 4: return multiply_tile<4>(a, a_stride, panel, k, by, out, out_stride, count);
    case 5: return multiply_tile<5>(a, a_stride, panel, k, by, out, out_stride, count);
    default: return;
  }
}

// Columns are contiguous in b (row 1): their transpose.
void pack_turned(const float* b, int64_t column, int64_t k, int64_t count, float* panel) {
  for (int64_t j = 0; j < kPanel; j += kLanes)
    for (int64_t i = 0; i < k; i += kLanes) {
      const int64_t n = smaller(kLanes, k - i);
      IntVec block[kLanes];
#pragma GCC unroll 16
      for (int c = 0; c < kLanes; ++c) {
        if (j + c >= count) {
          block[c] = IntVec{};
          continue;
        }
        const auto* from = reinterpret_cast<const uint32_t*>(b + (j + c) * column + i);
        block[c] = n == kLanes ? load_words(from) : load_words_n(from, n);
      }
      transpose(block);
      for (int64_t r = 0; r < n; ++r) store_words(reinterpret_cast<uint32_t*>(panel + (i + r) * kPanel + j), block[r]);
    }
}

void pack(const float* b, int64_t row, int64_t column, int64_t k, int64_t count, float* panel) {
  if (row == 1 && column != 1) return pack_turned(b, column, k, count, panel);
  for (int64_t i = 0; i < k; ++i, b += row, panel += kPanel) {
    if (column == 1) {
      for (int64_t j = 0; j < kPanel; j += kLanes) {
        const int64_t left = count - j;
        store(panel + j, left >= kLanes ? load(b + j) : left > 0 ? load_n(b + j, left) : zero());
      }
    } else {
      for (int64_t j = 0; j < kPanel; ++j) panel[j] = j < count ? b[j * column] : 0;
    }
  }
}

int64_t score_rows(int64_t width) {
  const int64_t rows = kScoreFloats / width / kTileRows * kTileRows;
  return rows < kTileRows ? kTileRows : smaller(rows, kScoreRows);
}

int64_t attend_scratch(const AttendTask& t) {
  const int64_t width = up_to(t.keys, kPanel), value_width = up_to(t.value_dim, kPanel);
  return width * t.dim + value_width * t.keys + score_rows(width) * (width + value_width) + up_to(kScoreRows, kLanes);
}

// Turns the scores of one query into weights relative to the largest; their sum is the result. Keys from `seen` on get
// none.
float weights_of(float* scores, const float* bias, float scale, int64_t seen, int64_t keys) {
  Vec most = set(kNothing);
  for_row(seen, [&](int64_t i, int64_t n) {
    Vec x = load_some(scores + i, n) * set(scale);
    if (bias != nullptr) x = x + load_some(bias + i, n);
    if (n != kLanes) x = within(x, set(kNothing), 0, n);
    store_some(scores + i, x, n);
    most = max(most, x);
  });
  const float top = largest(most);
  // A query that sees nothing attends to nothing.
  if (top == kNothing) {
    for_row(keys, [&](int64_t i, int64_t n) { store_some(scores + i, zero(), n); });
    return 1;
  }
  Vec total = zero();
  for_row(seen, [&](int64_t i, int64_t n) {
    Vec e = exp(load_some(scores + i, n) - set(top));
    if (n != kLanes) e = within(e, zero(), 0, n);
    store_some(scores + i, e, n);
    total = total + e;
  });
  if (seen < keys) for_row(keys - seen, [&](int64_t i, int64_t n) { store_some(scores + seen + i, zero(), n); });
  return sum(total);
}

void attend(const AttendTask& t) {
  const int64_t width = up_to(t.keys, kPanel), value_width = up_to(t.value_dim, kPanel);
  const int64_t step = score_rows(width);
  float* const keys = t.scratch;                        // panels [dim][kPanel]
  float* const values = keys + width * t.dim;           // panels [keys][kPanel]
  float* const scores = values + value_width * t.keys;  // [step, width]
  float* const sums = scores + step * width;            // [step, value_width]
  float* const totals = sums + step * value_width;      // [step]
  for (int64_t j = 0; j < t.keys; j += kPanel)
    pack(t.k + j * t.k_stride, 1, t.k_stride, t.dim, smaller(kPanel, t.keys - j), keys + j * t.dim);
  for (int64_t j = 0; j < t.value_dim; j += kPanel)
    pack(t.v + j, t.v_stride, 1, t.keys, smaller(kPanel, t.value_dim - j), values + j * t.keys);
  for (int64_t first = 0; first < t.rows; first += step) {
    const int64_t rows = smaller(step, t.rows - first);
    // Keys that the last of these queries sees.
    const int64_t reach = t.seen >= t.keys ? t.keys : smaller(t.keys, t.seen + first + rows - 1);
    for (int64_t j = 0; j < reach; j += kPanel)
      multiply(t.q + first * t.q_stride, t.q_stride, rows, keys + j * t.dim, t.dim, 1.f, scores + j, width, kPanel);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = first + r;
      const int64_t seen = t.seen >= t.keys ? t.keys : smaller(reach, t.seen + row);
      totals[r] = weights_of(scores + r * width, t.bias == nullptr ? nullptr : t.bias + row * t.bias_stride, t.scale,
                             seen < 0 ? 0 : seen, reach);
    }
    for (int64_t j = 0; j < t.value_dim; j += kPanel)
      multiply(scores, width, rows, values + j * t.keys, reach, 1.f, sums + j, value_width, kPanel);
    for (int64_t r = 0; r < rows; ++r)
      for_row(t.value_dim, [&, scale = set(1.f / totals[r])](int64_t i, int64_t n) {
        store_some(t.out + (first + r) * t.out_stride + i, load_some(sums + r * value_width + i, n) * scale, n);
      });
  }
}

constexpr isa::PanelFunctions kPanelFunctions = {static_cast<int>(kPanel), pack, multiply, attend_scratch, attend};

}  // namespace
}  // namespace bolide
