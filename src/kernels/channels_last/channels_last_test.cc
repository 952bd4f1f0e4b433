#include "kernels/channels_last/channels_last.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/testing/guarded.h"

namespace bolide::channels_last {
namespace {

std::vector<Isa> levels() {
  std::vector<Isa> list;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512})
    if (bolide::supports(detect_cpu(), isa)) list.push_back(isa);
  return list;
}

// Random floats between guards.
class Floats {
 public:
  explicit Floats(int64_t count) : memory_(static_cast<size_t>(count) * sizeof(float)) {}
  Floats(int64_t count, std::mt19937& random) : Floats(count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) data()[i] = normal(random);
  }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  double operator[](int64_t i) const { return static_cast<double>(data()[i]); }
  bool intact() const { return memory_.intact(); }

 private:
  testing::Guarded memory_;
};

struct Drawn {
  Windows windows;
  int64_t images = 1, end[2] = {0, 0};
  int64_t outputs() const { return images * windows.height_out * windows.width_out * windows.channels; }
};

Drawn draw_windows(std::mt19937& random) {
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Drawn to;
  Windows& w = to.windows;
  to.images = draw(1, 2);
  w.channels = w.pixel_stride = draw(1, 50);
  w.height = draw(1, 9), w.width = draw(1, 40);
  for (int i = 0; i < 2; ++i) {
    w.kernel[i] = draw(1, 5), w.stride[i] = draw(1, 3), w.dilation[i] = draw(1, 2);
    w.begin[i] = draw(0, 3), to.end[i] = draw(0, 3);
    const int64_t span = (w.kernel[i] - 1) * w.dilation[i] + 1;
    int64_t& size = i == 0 ? w.height : w.width;
    size = std::max(size, span - w.begin[i] - to.end[i]);
    (i == 0 ? w.height_out : w.width_out) = (size + w.begin[i] + to.end[i] - span) / w.stride[i] + 1;
  }
  return to;
}

// f(output, image, oy, ox, channel) for each output.
template <class F>
void for_each(const Drawn& d, F&& f) {
  const Windows& w = d.windows;
  for (int64_t i = 0; i < d.outputs(); ++i)
    f(i, i / w.channels / w.width_out / w.height_out, i / w.channels / w.width_out % w.height_out,
      i / w.channels % w.width_out, i % w.channels);
}
// f(tap, place in the image or -1) for each tap of a window.
template <class F>
void for_taps(const Windows& w, int64_t oy, int64_t ox, F&& f) {
  for (int64_t ky = 0; ky < w.kernel[0]; ++ky)
    for (int64_t kx = 0; kx < w.kernel[1]; ++kx) {
      const int64_t y = oy * w.stride[0] - w.begin[0] + ky * w.dilation[0];
      const int64_t x = ox * w.stride[1] - w.begin[1] + kx * w.dilation[1];
      const bool inside = y >= 0 && x >= 0 && y < w.height && x < w.width;
      f(ky * w.kernel[1] + kx, inside ? (y * w.width + x) * w.pixel_stride : -1, y, x);
    }
}

TEST(ChannelsLast, Depthwise) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    const Drawn d = draw_windows(random);
    const Windows& w = d.windows;
    const Floats x(d.images * w.image_stride(), random), weights(w.depth(), random), bias(w.channels, random);
    const Floats residual(d.outputs(), random);
    const bool biased = random() % 2 == 0, added = random() % 2 == 0;
    const Activation activations[] = {Activation::kNone, Activation::kRelu, Activation::kClip, Activation::kSilu};
    const Activation activation = activations[random() % 4];
    for (const Isa isa : levels()) {
      Workers workers(1 + round % 3);
      const Floats y(d.outputs());
      depthwise(workers, isa,
                {.windows = w,
                 .images = d.images,
                 .x = x.data(),
                 .weights = weights.data(),
                 .bias = biased ? bias.data() : nullptr,
                 .residual = added ? residual.data() : nullptr,
                 .y = y.data(),
                 .activation = activation,
                 .alpha = -0.3f,
                 .beta = 0.7f});
      ASSERT_TRUE(y.intact());
      for_each(d, [&](int64_t i, int64_t image, int64_t oy, int64_t ox, int64_t c) {
        double sum = biased ? bias[c] : 0;
        for_taps(w, oy, ox, [&](int64_t tap, int64_t at, int64_t, int64_t) {
          if (at >= 0) sum += x[image * w.image_stride() + at + c] * weights[tap * w.channels + c];
        });
        if (added) sum += residual[i];
        if (activation == Activation::kRelu) sum = std::max(sum, 0.0);
        if (activation == Activation::kClip)
          sum = std::min(static_cast<double>(0.7f), std::max(static_cast<double>(-0.3f), sum));
        if (activation == Activation::kSilu) sum = sum / (1 + std::exp(-sum));
        ASSERT_NEAR(y[i], sum, 2e-5) << to_string(isa);
      });
    }
  }
}

TEST(ChannelsLast, Pools) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    const Drawn d = draw_windows(random);
    const Windows& w = d.windows;
    const Floats x(d.images * w.image_stride(), random);
    const bool counts = random() % 2 == 0;
    for (const Isa isa : levels()) {
      Workers workers(1 + round % 3);
      const Floats most(d.outputs()), mean(d.outputs());
      max_pool(workers, isa, w, d.images, x.data(), most.data());
      average_pool(workers, isa, w, d.images, x.data(), mean.data(), counts, d.end);
      ASSERT_TRUE(most.intact() && mean.intact());
      for_each(d, [&](int64_t i, int64_t image, int64_t oy, int64_t ox, int64_t c) {
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        int64_t inside = 0, with_padding = 0;
        for_taps(w, oy, ox, [&](int64_t, int64_t at, int64_t py, int64_t px) {
          with_padding += py < w.height + d.end[0] && px < w.width + d.end[1];
          if (at < 0) return;
          const double value = x[image * w.image_stride() + at + c];
          largest = std::max(largest, value), sum += value, ++inside;
        });
        const int64_t count = counts ? with_padding : inside;
        ASSERT_EQ(most[i], largest);
        ASSERT_NEAR(mean[i], count == 0 ? 0 : sum / static_cast<double>(count), 1e-5) << to_string(isa);
      });
    }
  }
}

TEST(ChannelsLast, MeanOfPixels) {
  std::mt19937 random(std::random_device{}());
  for (const int64_t pixels : {1, 2, 49, 1023, 1025, 5000})
    for (const int64_t channels : {1, 15, 16, 70, 130})
      for (const Isa isa : levels()) {
        Workers workers(2);
        const Floats x(2 * pixels * channels, random), y(2 * channels);
        mean_of_pixels(workers, isa, 2, pixels, channels, x.data(), y.data());
        ASSERT_TRUE(y.intact());
        for (int64_t i = 0; i < 2 * channels; ++i) {
          double sum = 0;
          for (int64_t p = 0; p < pixels; ++p) sum += x[(i / channels * pixels + p) * channels + i % channels];
          ASSERT_NEAR(y[i], sum / static_cast<double>(pixels), 1e-5);
        }
      }
}

TEST(ChannelsLast, Transpose) {
  std::mt19937 random(std::random_device{}());
  for (const int64_t rows : {1, 2, 3, 7, 8, 16, 17, 40, 65, 200})
    for (const int64_t columns : {1, 3, 8, 15, 16, 31, 64, 129, 200})
      for (const Isa isa : levels()) {
        Workers workers(2);
        const Floats x(2 * rows * columns, random), y(2 * rows * columns);
        transpose(workers, isa, 2, rows, columns, x.data(), y.data());
        ASSERT_TRUE(y.intact());
        for (int64_t i = 0; i < 2 * rows * columns; ++i)
          ASSERT_EQ(y[i], x[(i / rows / columns * rows + i % rows) * columns + i / rows % columns]);
      }
}

}  // namespace
}  // namespace bolide::channels_last
