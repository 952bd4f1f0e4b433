// Tiles, packing and activations of igemm on Vec; include after vec_avx2.h or vec_avx512.h.
#pragma once

#include "kernels/igemm/igemm_isa.h"
#include "kernels/simd/math.h"
#include "kernels/simd/row.h"

namespace bolide::igemm {
namespace {

// --- Tiles ---

// Sums to C. kWhole: every column is there.
template <int kRows, int kVecs, bool kWhole>
BOLIDE_INLINE void finish(const Tile& t, Vec (&sum)[kRows][kVecs]) {
  const auto get = [&](const float* p, int v) {
    if constexpr (kWhole) return load(p + v * kLanes);
    const int64_t left = t.columns - v * kLanes;
    return left <= 0 ? zero() : left >= kLanes ? load(p + v * kLanes) : load_n(p + v * kLanes, left);
  };
  if (t.adds) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[i][v] = sum[i][v] + get(t.c + i * t.c_stride, v);
  } else if (t.bias != nullptr) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      const Vec bias = get(t.bias, v);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) sum[i][v] = sum[i][v] + bias;
    }
  }
  if (t.ends) {
    const Vec low = set(t.low), high = set(t.high);
    if (t.residual != nullptr) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) sum[i][v] = sum[i][v] + get(t.residual + i * t.residual_stride, v);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[i][v] = min(high, max(low, sum[i][v]));  // NaN stays
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      float* const to = t.c + i * t.c_stride + v * kLanes;
      const int64_t left = t.columns - v * kLanes;
      if (kWhole || left >= kLanes)
        store(to, sum[i][v]);
      else if (left > 0)
        store_n(to, sum[i][v], left);
    }
}

template <int kRows, int kVecs>
void tile(const Tile& t) {
  constexpr int kGroups = (kRows + 2) / 3;  // rows of three share a pointer: base, base + stride, base + 2 stride
  Vec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[i][v] = zero();
  const int64_t b_stride = t.b_stride;
  int64_t stride = t.a_stride, run = t.run;
  const float* b = t.b;
  // Rows of C and of the residual are asked for now: they come while K is summed.
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVecs; v += kStrip / kLanes) {
      __builtin_prefetch(t.c + i * t.c_stride + v * kLanes, 1);
      if (t.residual != nullptr) __builtin_prefetch(t.residual + i * t.residual_stride + v * kLanes);
    }
  if (t.next_a != nullptr)
    for (int i = 0; i < kRows; ++i) {
      __builtin_prefetch(t.next_a + i * stride);
      __builtin_prefetch(t.next_a + i * stride + 16);
    }
  const char* next_b = reinterpret_cast<const char*>(t.next_b);
  for (int64_t r = 0; r < t.runs; ++r) {
    const float* first = t.a + r * t.a_run_stride;
    if (t.parts != nullptr) {
      stride = t.parts[r].stride, run = t.parts[r].depth;
      first = t.parts[r].a + t.row * stride;
    }
    const float* a[kGroups];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) a[g] = first + 3 * g * stride;
#pragma GCC unroll 1
    for (int64_t k = run; k > 0; --k) {
      Vec w[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) w[v] = load(b + v * kLanes / kStrip * b_stride + v * kLanes % kStrip);
      b += kStrip;
      __builtin_prefetch(next_b, 0, 2);
      if constexpr (kVecs * kLanes > kStrip)
        __builtin_prefetch(next_b + b_stride * static_cast<int64_t>(sizeof(float)), 0, 2);
      next_b += t.next_b_step;
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vec x = set(a[i / 3][i % 3 * stride]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) sum[i][v] = fma(x, w[v], sum[i][v]);
      }
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; ++g) ++a[g];
    }
  }
  if (t.columns >= kVecs * kLanes)
    finish<kRows, kVecs, true>(t, sum);
  else
    finish<kRows, kVecs, false>(t, sum);
}

#define BOLIDE_TILES_6(vecs) tile<1, vecs>, tile<2, vecs>, tile<3, vecs>, tile<4, vecs>, tile<5, vecs>, tile<6, vecs>
#define BOLIDE_TILES_14(vecs)                                                                                        \
  BOLIDE_TILES_6(vecs), tile<7, vecs>, tile<8, vecs>, tile<9, vecs>, tile<10, vecs>, tile<11, vecs>, tile<12, vecs>, \
      tile<13, vecs>, tile<14, vecs>

// --- Packing ---

BOLIDE_INLINE void copy(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  if (i < count) store_n(to + i, load_n(from + i, count - i), count - i);
}
BOLIDE_INLINE void clear(int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, zero());
  if (i < count) store_n(to + i, zero(), count - i);
}

void pack_rows(const float* a, int64_t a_stride, int64_t rows, int64_t count, float* to, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) copy(a + i * a_stride, count, to + i * stride);
}

// Columns [k, end) of the part of a window that lies in one row of taps, where k = 0 is its first tap's first channel.
// `row`: the image's row, null outside; `x`: the first tap's pixel.
BOLIDE_INLINE void pack_taps(const Windows& w, const float* row, int64_t x, int64_t k, int64_t end, float* to) {
  if (row == nullptr) return clear(end - k, to);
  const int64_t C = w.channels;
  if (w.dilation[1] == 1 && w.pixel_stride == C) {  // neighbouring pixels follow one another
    const int64_t inside_from = x < 0 ? -x * C : 0;
    const int64_t inside_to = (w.width - x) * C;
    const int64_t lo = k > inside_from ? k : inside_from < end ? inside_from : end;
    const int64_t hi = end < inside_to ? end : inside_to > lo ? inside_to : lo;
    if (lo > k) clear(lo - k, to);
    if (hi > lo) copy(row + x * C + lo, hi - lo, to + (lo - k));
    if (end > hi) clear(end - hi, to + (hi - k));
    return;
  }
  int64_t tap = k / C, channel = k % C;
  while (k < end) {
    const int64_t count = C - channel < end - k ? C - channel : end - k;
    const int64_t at = x + tap * w.dilation[1];
    if (at >= 0 && at < w.width)
      copy(row + at * w.pixel_stride + channel, count, to);
    else
      clear(count, to);
    to += count, k += count, channel = 0, ++tap;
  }
}

void pack_windows(const Windows& w, const float* a, int64_t m, int64_t rows, int64_t k, int64_t count, float* to,
                  int64_t stride) {
  const int64_t row_depth = w.kernel[1] * w.channels;
  int64_t ox = m % w.width_out, oy = m / w.width_out % w.height_out;
  const float* image = a + m / w.width_out / w.height_out * w.image_stride();
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t x = ox * w.stride[1] - w.begin[1];
    int64_t done = 0;
    for (int64_t tap = k / row_depth, first = k % row_depth; done < count; ++tap, first = 0) {
      const int64_t y = oy * w.stride[0] - w.begin[0] + tap * w.dilation[0];
      const int64_t left = count - done, end = row_depth - first < left ? row_depth : first + left;
      const float* row = y >= 0 && y < w.height ? image + y * w.width * w.pixel_stride : nullptr;
      pack_taps(w, row, x, first, end, to + i * stride + done);
      done += end - first;
    }
    if (++ox < w.width_out) continue;
    ox = 0;
    if (++oy < w.height_out) continue;
    oy = 0, image += w.image_stride();
  }
}

void pack_lines(const Windows& w, const float* image, int64_t y, int64_t count, int64_t size, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const bool inside = y + i >= 0 && y + i < w.height;
    pack_taps(w, inside ? image + (y + i) * w.width * w.pixel_stride : nullptr, -w.begin[1], 0, size, to + i * size);
  }
}

void pack_strip(const float* b, int64_t row_stride, int64_t column_stride, int64_t K, int64_t columns, float scale,
                float* to) {
  const Vec s = set(scale);
  if (column_stride == 1) {
    for (int64_t k = 0; k < K; ++k)
      for (int64_t j = 0; j < kStrip; j += kLanes) {
        const float* from = b + k * row_stride + j;
        const int64_t left = columns - j;
        store(to + k * kStrip + j, s * (left >= kLanes ? load(from) : left > 0 ? load_n(from, left) : zero()));
      }
    return;
  }
  int64_t k = 0;
  if (row_stride == 1) {
    for (; k + kLanes <= K; k += kLanes)
      for (int64_t j = 0; j < kStrip; j += kLanes) {
        IntVec lines[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const bool there = j + i < columns;
          const float* from = there ? b + (j + i) * column_stride + k : b;
          lines[i] = load_words_n(reinterpret_cast<const uint32_t*>(from), 0);
          if (there) lines[i] = load_words(reinterpret_cast<const uint32_t*>(from));
        }
        transpose(lines);
        for (int i = 0; i < kLanes; ++i) {
          float* const line = to + (k + i) * kStrip + j;
          store_words(reinterpret_cast<uint32_t*>(line), lines[i]);
          if (scale != 1) store(line, s * load(line));
        }
      }
  }
  for (; k < K; ++k)
    for (int64_t j = 0; j < kStrip; ++j)
      to[k * kStrip + j] = j < columns ? scale * b[k * row_stride + j * column_stride] : 0.f;
}

// --- Activations ---

template <class F>
BOLIDE_INLINE void each(const Rows& rows, F&& f) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const float* const x = rows.x + r * rows.x_stride;
    float* const y = rows.y + r * rows.y_stride;
    for_row(rows.columns,
            [&](int64_t i, int64_t n) __attribute__((always_inline)) { store_some(y + i, f(load_some(x + i, n)), n); });
  }
}

void activate_rows(Activation activation, float alpha, float beta, const Rows& rows) {
  const Vec a = set(alpha), b = set(beta), one = set(1.f);
  const auto clamp = [](Vec v, Vec low, Vec high) { return min(high, max(low, v)); };
  switch (activation) {
    case Activation::kNone: return each(rows, [](Vec v) { return v; });
    case Activation::kRelu: return each(rows, [](Vec v) { return relu(v); });
    case Activation::kClip: return each(rows, [&](Vec v) { return clamp(v, a, b); });
    case Activation::kLeakyRelu: return each(rows, [&](Vec v) { return select(less(v, zero()), a * v, v); });
    case Activation::kSigmoid: return each(rows, [&](Vec v) { return sigmoid_times(one, v); });
    case Activation::kTanh: return each(rows, [](Vec v) { return tanh(v); });
    case Activation::kHardSigmoid: return each(rows, [&](Vec v) { return clamp(fma(a, v, b), zero(), one); });
    case Activation::kHardSwish:
      return each(rows, [&](Vec v) { return v * clamp(fma(v, set(1.f / 6), set(0.5f)), zero(), one); });
    case Activation::kSilu: return each(rows, [](Vec v) { return silu(v); });
    case Activation::kGelu: return each(rows, [](Vec v) { return gelu(v); });
    case Activation::kGeluTanh: return each(rows, [](Vec v) { return gelu_tanh(v); });
  }
}

}  // namespace
}  // namespace bolide::igemm
