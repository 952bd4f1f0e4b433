#include "kernels/channels_last/channels_last.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/channels_last/channels_last_isa.h"

namespace bolide::channels_last {
namespace {

constexpr int64_t kChunkWork = 64 * 1024;  // vector elements touched that are worth a chunk: some 5 us

const Functions& functions_of(Isa isa) {
  BOLIDE_CHECK(supports(isa), "{}", to_string(isa));
  return isa >= Isa::kAvx512 ? kAvx512 : kAvx2;
}

// body(begin, end) for parts of [0, count), `each` of work.
template <class F>
void parts(Workers& workers, int64_t count, int64_t each, F&& body) {
  if (count <= 0) return;
  const int64_t worth = std::max<int64_t>(1, count * std::max<int64_t>(each, 1) / kChunkWork);
  const int64_t chunks = std::min({count, worth, int64_t{8} * workers.threads()});
  workers.run(chunks, [&](int64_t chunk, int) { body(count * chunk / chunks, count * (chunk + 1) / chunks); });
}

int64_t row_work(const Windows& w) { return w.width_out * w.depth(); }

// body(image, row) on the workers.
template <class F>
void rows(Workers& workers, const Windows& w, int64_t images, F&& body) {
  parts(workers, images * w.height_out, row_work(w), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i / w.height_out, i % w.height_out);
  });
}

}  // namespace

void depthwise(Workers& workers, Isa isa, const Depthwise& d) {
  const Functions& f = functions_of(isa);
  const Windows& w = d.windows;
  const int64_t row_size = w.width_out * w.channels;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  const bool relu = d.activation == Activation::kRelu, clip = d.activation == Activation::kClip;
  if (relu) low = 0;
  if (clip) low = d.alpha, high = d.beta;
  const bool activates = !relu && !clip && d.activation != Activation::kNone;
  rows(workers, w, d.images, [&](int64_t image, int64_t row) {
    const int64_t at = (image * w.height_out + row) * row_size;
    f.depthwise({.windows = w,
                 .image = d.x + image * w.image_stride(),
                 .row = row,
                 .y = d.y + at,
                 .weights = d.weights,
                 .bias = d.bias,
                 .residual = d.residual == nullptr ? nullptr : d.residual + at,
                 .low = low,
                 .high = high});
    if (activates) igemm::activate(isa, d.activation, d.alpha, d.beta, d.y + at, d.y + at, row_size);
  });
}

void max_pool(Workers& workers, Isa isa, const Windows& w, int64_t images, const float* x, float* y) {
  const Functions& f = functions_of(isa);
  rows(workers, w, images, [&](int64_t image, int64_t row) {
    f.max({.windows = w,
           .image = x + image * w.image_stride(),
           .row = row,
           .y = y + (image * w.height_out + row) * w.width_out * w.channels});
  });
}

void average_pool(Workers& workers, Isa isa, const Windows& w, int64_t images, const float* x, float* y,
                  bool counts_padding, const int64_t (&end)[2]) {
  const Functions& f = functions_of(isa);
  rows(workers, w, images, [&](int64_t image, int64_t row) {
    f.mean({.windows = w,
            .image = x + image * w.image_stride(),
            .row = row,
            .y = y + (image * w.height_out + row) * w.width_out * w.channels,
            .counts_padding = counts_padding,
            .end = {end[0], end[1]}});
  });
}

void mean_of_pixels(Workers& workers, Isa isa, int64_t images, int64_t pixels, int64_t channels, const float* x,
                    float* y) {
  const Functions& f = functions_of(isa);
  constexpr int64_t kChannels = 64;
  const int64_t blocks = (channels + kChannels - 1) / kChannels;
  parts(workers, images * blocks, pixels * kChannels, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / blocks, c = i % blocks * kChannels;
      f.mean_of_pixels(pixels, std::min(kChannels, channels - c), channels, x + image * pixels * channels + c,
                       y + image * channels + c);
    }
  });
}

void transpose(Workers& workers, Isa isa, int64_t batch, int64_t rows, int64_t columns, const float* x, float* y) {
  const Functions& f = functions_of(isa);
  if (rows == 1 || columns == 1) {
    parts(workers, batch * rows * columns, 1,
          [&](int64_t begin, int64_t end) { std::copy(x + begin, x + end, y + begin); });
    return;
  }
  // Blocks whose lines of both sides stay in L1 and L2.
  constexpr int64_t kBlock = 64;
  const bool wide = columns >= rows;  // the longer axis is cut
  const int64_t length = wide ? columns : rows, across = wide ? rows : columns;
  const int64_t blocks = (length + kBlock - 1) / kBlock;
  parts(workers, batch * blocks, kBlock * across * 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = i % blocks * kBlock, to = std::min(length, from + kBlock);
      const int64_t at = i / blocks * rows * columns;
      if (wide)
        f.transpose(x + at, y + at, rows, columns, 0, rows, from, to);
      else
        f.transpose(x + at, y + at, rows, columns, from, to, 0, columns);
    }
  });
}

}  // namespace bolide::channels_last
