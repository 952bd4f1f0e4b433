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
constexpr int64_t kFewRows = 8;  // queries that read keys and values where they lie

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
  const int64_t width = up_to(t.keys < 1 ? 1 : t.keys, kPanel), value_width = up_to(t.value_dim, kPanel);
  const int64_t few = kFewRows * width;
  if (t.rows <= kFewRows) return few;
  const int64_t many =
      width * t.dim + value_width * t.keys + score_rows(width) * (width + value_width) + up_to(kScoreRows, kLanes);
  return many > few ? many : few;
}

// Keys [first, last) that row r sees; none: last is first.
struct Seen {
  int64_t first, last;
};
Seen seen_by(const AttendTask& t, int64_t r) {
  int64_t last = t.seen >= t.keys && t.window <= 0 ? t.keys : t.seen + r;
  const int64_t first = t.window > 0 && last > t.window ? last - t.window : 0;
  last = smaller(last < 0 ? 0 : last, t.keys);
  return {smaller(first, last), last};
}

// Turns the scores of row r into weights relative to the largest; their sum is the result. Keys it does not see, up to
// `reach`, get none.
float weights_of(const AttendTask& t, int64_t r, float* row, int64_t reach) {
  const auto [first, last] = seen_by(t, r);
  float* const scores = row + first;
  const int64_t count = last - first;
  const float* bias = t.bias == nullptr ? nullptr : t.bias + r * t.bias_stride + first;
  const auto nothing = [row](int64_t from, int64_t to) {
    if (from < to) for_row(to - from, [&](int64_t i, int64_t n) { store_some(row + from + i, zero(), n); });
  };
  Vec most = set(kNothing);
  for_row(count, [&](int64_t i, int64_t n) {
    Vec x = load_some(scores + i, n) * set(t.scale);
    if (t.softcap > 0) x = tanh(x * set(1.f / t.softcap)) * set(t.softcap);
    if (bias != nullptr) x = x + load_some(bias + i, n);
    if (n != kLanes) x = within(x, set(kNothing), 0, n);
    store_some(scores + i, x, n);
    most = max(most, x);
  });
  float top = largest(most);
  // A query that sees nothing attends to nothing.
  if (top == kNothing) {
    nothing(0, reach);
    return 1;
  }
  Vec total = zero();
  if (t.sinks != nullptr) {
    const float sink = t.sinks[r * t.sinks_stride];
    top = sink > top ? sink : top;
    total = within(exp(set(sink - top)), zero(), 0, 1);
  }
  for_row(count, [&](int64_t i, int64_t n) {
    Vec e = exp(load_some(scores + i, n) - set(top));
    if (n != kLanes) e = within(e, zero(), 0, n);
    store_some(scores + i, e, n);
    total = total + e;
  });
  nothing(0, first);
  nothing(last, reach);
  return sum(total);
}

// scores[r][j] = q_r k_j for kRows rows and all keys of [first, last).
template <int kRows>
void score_few(const AttendTask& t, int64_t row, int64_t first, int64_t last, float* scores, int64_t width) {
  const float* q[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) q[r] = t.q + (row + r) * t.q_stride;
  for (int64_t j = first; j < last; ++j) {
    const float* k = t.k + j * t.k_stride;
    Vec sums[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[r] = zero();
    for_row(t.dim, [&](int64_t i, int64_t n) {
      const Vec key = load_some(k + i, n);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r] = fma(key, load_some(q[r] + i, n), sums[r]);
    });
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) scores[(row + r) * width + j] = sum(sums[r]);
  }
}

// out_r = sum over [first, last) of weights[r][j] v_j, by `by[r]`.
template <int kRows>
void weigh_few(const AttendTask& t, int64_t row, int64_t first, int64_t last, const float* weights, int64_t width,
               const float* by) {
  constexpr int kVectors = kRegisters == 32 ? 4 : 2;
  for (int64_t d = 0; d < t.value_dim; d += kVectors * kLanes) {
    Vec sums[kRows][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();
    const bool whole = d + kVectors * kLanes <= t.value_dim;
    const auto part = [&](int v) {
      const int64_t left = t.value_dim - d - v * kLanes;
      return left >= kLanes ? static_cast<int64_t>(kLanes) : left < 0 ? 0 : left;
    };
    for (int64_t j = first; j < last; ++j) {
      const float* from = t.v + j * t.v_stride + d;
      Vec values[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        values[v] = whole ? load(from + v * kLanes) : part(v) > 0 ? load_some(from + v * kLanes, part(v)) : zero();
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Vec weight = set(weights[(row + r) * width + j]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(weight, values[v], sums[r][v]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        if (part(v) > 0)
          store_some(t.out + (row + r) * t.out_stride + d + v * kLanes, sums[r][v] * set(by[row + r]), part(v));
  }
}

// f.operator()<rows>(row) in fours, then one by one.
template <class F>
BOLIDE_INLINE void by_four(int64_t rows, F&& f) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) f.template operator()<4>(r);
  for (; r < rows; ++r) f.template operator()<1>(r);
}

// Keys and values are read where they lie: a panel of them would be read less often than it costs to make.
void attend_few(const AttendTask& t) {
  const int64_t width = up_to(t.keys, kPanel);
  float* const scores = t.scratch;  // [rows, width]
  const int64_t reach = seen_by(t, t.rows - 1).last, least = seen_by(t, 0).first;
  float by[kFewRows];
  by_four(t.rows, [&]<int kRows>(int64_t r) { score_few<kRows>(t, r, least, reach, scores, width); });
  for (int64_t r = 0; r < t.rows; ++r) by[r] = 1.f / weights_of(t, r, scores + r * width, reach);
  by_four(t.rows, [&]<int kRows>(int64_t r) { weigh_few<kRows>(t, r, least, reach, scores, width, by); });
}

void attend(const AttendTask& t) {
  if (t.rows <= kFewRows) return attend_few(t);
  const int64_t width = up_to(t.keys < 1 ? 1 : t.keys, kPanel), value_width = up_to(t.value_dim, kPanel);
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
    const int64_t reach = seen_by(t, first + rows - 1).last;
    for (int64_t j = 0; j < reach; j += kPanel)
      multiply(t.q + first * t.q_stride, t.q_stride, rows, keys + j * t.dim, t.dim, 1.f, scores + j, width, kPanel);
    for (int64_t r = 0; r < rows; ++r) totals[r] = weights_of(t, first + r, scores + r * width, reach);
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
