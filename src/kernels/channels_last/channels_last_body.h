// Rows of windows and blocks of transposes on Vec; include after vec_avx2.h or vec_avx512.h.
#pragma once

#include "kernels/channels_last/channels_last_isa.h"
#include "kernels/simd/row.h"

namespace bolide::channels_last {
namespace {

enum class Sum : uint8_t { kProducts, kMax, kMean };

constexpr float kInfinity = __builtin_inff();

// Outputs [ox, ox + kPixels) of the row, whose windows have the taps [x0, x1) and [y0, y1) inside the image.
template <Sum kSum, int kPixels>
BOLIDE_INLINE void pixels(const PoolRow& p, int64_t ox, int64_t y0, int64_t y1, int64_t x0, int64_t x1, float factor) {
  const Windows& w = p.windows;
  const int64_t C = w.channels, line = w.width * w.pixel_stride;
  const int64_t step = w.dilation[1] * w.pixel_stride, shift = w.stride[1] * w.pixel_stride;
  const float* const first = p.image + (p.row * w.stride[0] - w.begin[0] + y0 * w.dilation[0]) * line +
                             (ox * w.stride[1] - w.begin[1] + x0 * w.dilation[1]) * w.pixel_stride;
  for_row(C, [&](int64_t c, int64_t n) __attribute__((always_inline)) {
    Vec sum[kPixels];
    const Vec start = kSum == Sum::kMax                             ? set(-kInfinity)
                      : kSum == Sum::kProducts && p.bias != nullptr ? load_some(p.bias + c, n)
                                                                    : zero();
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) sum[i] = start;
    for (int64_t y = y0; y < y1; ++y) {
      const float* from = first + (y - y0) * w.dilation[0] * line + c;
      for (int64_t x = x0; x < x1; ++x, from += step) {
        Vec weight;
        if constexpr (kSum == Sum::kProducts) weight = load_some(p.weights + (y * w.kernel[1] + x) * C + c, n);
#pragma GCC unroll 8
        for (int i = 0; i < kPixels; ++i) {
          const Vec value = load_some(from + i * shift, n);
          if constexpr (kSum == Sum::kProducts)
            sum[i] = fma(value, weight, sum[i]);
          else if constexpr (kSum == Sum::kMax)
            sum[i] = max(sum[i], value);  // NaN stays once it is there
          else
            sum[i] = sum[i] + value;
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) {
      Vec value = sum[i];
      if constexpr (kSum == Sum::kProducts) {
        if (p.residual != nullptr) value = value + load_some(p.residual + (ox + i) * C + c, n);
        value = min(set(p.high), max(set(p.low), value));
      } else if constexpr (kSum == Sum::kMean) {
        value = value * set(factor);
      }
      store_some(p.y + (ox + i) * C + c, value, n);
    }
  });
}

struct Taps {
  int64_t first, last, with_padding;
};
// Of the window at position `at` of an axis: the taps inside, and how many lie inside or in the padding.
inline Taps taps_of(const Windows& w, int axis, int64_t at, int64_t end) {
  const int64_t size = axis == 0 ? w.height : w.width, start = at * w.stride[axis] - w.begin[axis];
  const int64_t dilation = w.dilation[axis], kernel = w.kernel[axis];
  const auto within = [&](int64_t n) { return n < 0 ? 0 : n > kernel ? kernel : n; };
  Taps taps;
  taps.first = start >= 0 ? 0 : within((-start + dilation - 1) / dilation);
  taps.last = size - start <= 0 ? 0 : within((size - start + dilation - 1) / dilation);
  if (taps.last < taps.first) taps.last = taps.first;
  const int64_t room = size + end - start;
  taps.with_padding = room <= 0 ? 0 : within((room + dilation - 1) / dilation);
  return taps;
}

template <Sum kSum>
void row(const PoolRow& p) {
  const Windows& w = p.windows;
  const Taps y = taps_of(w, 0, p.row, p.end[0]);
  for (int64_t ox = 0; ox < w.width_out;) {
    const Taps x = taps_of(w, 1, ox, p.end[1]);
    float factor = 0;
    if constexpr (kSum == Sum::kMean) {
      const int64_t count =
          p.counts_padding ? y.with_padding * x.with_padding : (y.last - y.first) * (x.last - x.first);
      factor = count == 0 ? 0.f : 1.f / static_cast<float>(count);
    }
    // How many windows from here on have all taps inside.
    const int64_t span = (w.kernel[1] - 1) * w.dilation[1];
    int64_t whole = 0;
    if (x.first == 0 && x.last == w.kernel[1])
      whole = (w.width - 1 - span - (ox * w.stride[1] - w.begin[1])) / w.stride[1] + 1;
    if (whole > w.width_out - ox) whole = w.width_out - ox;
    if (whole >= 8) {
      for (; whole >= 8; whole -= 8, ox += 8) pixels<kSum, 8>(p, ox, y.first, y.last, x.first, x.last, factor);
    } else if (whole >= 4) {
      pixels<kSum, 4>(p, ox, y.first, y.last, x.first, x.last, factor), ox += 4;
    } else {
      pixels<kSum, 1>(p, ox, y.first, y.last, x.first, x.last, factor), ++ox;
    }
  }
}

void mean_of_pixels(int64_t pixels, int64_t channels, int64_t pixel_stride, const float* x, float* y) {
  constexpr int64_t kPixelsMax = 1024;  // that are summed before the sum is added to the rest
  const Vec factor = set(pixels == 0 ? 0.f : 1.f / static_cast<float>(pixels));
  for_row(channels, [&](int64_t c, int64_t n) {
    Vec total = zero();
    for (int64_t begin = 0; begin < pixels; begin += kPixelsMax) {
      const int64_t end = begin + kPixelsMax < pixels ? begin + kPixelsMax : pixels;
      Vec sum[2] = {zero(), zero()};
      int64_t i = begin;
      for (; i + 2 <= end; i += 2)
        for (int k = 0; k < 2; ++k) sum[k] = sum[k] + load_some(x + (i + k) * pixel_stride + c, n);
      if (i < end) sum[0] = sum[0] + load_some(x + i * pixel_stride + c, n);
      total = total + (sum[0] + sum[1]);
    }
    store_some(y + c, total * factor, n);
  });
}

void transpose_block(const float* x, float* y, int64_t rows, int64_t columns, int64_t r0, int64_t r1, int64_t c0,
                     int64_t c1) {
  const auto words = [](const float* p) { return reinterpret_cast<const uint32_t*>(p); };
  int64_t r = r0;
  for (; r + kLanes <= r1; r += kLanes) {
    int64_t c = c0;
    for (; c + kLanes <= c1; c += kLanes) {
      IntVec lines[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) lines[i] = load_words(words(x + (r + i) * columns + c));
      transpose(lines);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store_words(reinterpret_cast<uint32_t*>(y + (c + i) * rows + r), lines[i]);
    }
    for (; c < c1; ++c)
      for (int i = 0; i < kLanes; ++i) y[c * rows + r + i] = x[(r + i) * columns + c];
  }
  // A few rows: columns stay the inner loop, so that what is read lies together.
  if (r1 - r == 3 && rows == 3) {
    const float *a = x + r * columns, *b = a + columns, *d = b + columns;
    for (int64_t c = c0; c < c1; ++c) {
      float* const to = y + c * 3;
      to[0] = a[c], to[1] = b[c], to[2] = d[c];
    }
    return;
  }
  for (; r < r1; ++r)
    for (int64_t c = c0; c < c1; ++c) y[c * rows + r] = x[r * columns + c];
}

constexpr Functions kFunctions = {row<Sum::kProducts>, row<Sum::kMax>, row<Sum::kMean>, mean_of_pixels,
                                  transpose_block};

}  // namespace
}  // namespace bolide::channels_last
