#include "kernels/igemm/igemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/testing/guarded.h"

namespace bolide::igemm {
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
  explicit Floats(int64_t count) : memory_(static_cast<size_t>(count) * sizeof(float)), count_(count) {}
  Floats(int64_t count, std::mt19937& random) : Floats(count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) data()[i] = normal(random);
  }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  int64_t count() const { return count_; }
  float operator[](int64_t i) const { return data()[i]; }
  bool intact() const { return memory_.intact(); }

 private:
  testing::Guarded memory_;
  int64_t count_;
};

double activated(Activation activation, double alpha, double beta, double x) {
  const auto clamp = [](double v, double low, double high) { return std::min(high, std::max(low, v)); };
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kClip: return clamp(x, alpha, beta);
    case Activation::kLeakyRelu: return x < 0 ? alpha * x : x;
    case Activation::kSigmoid: return 1 / (1 + std::exp(-x));
    case Activation::kTanh: return std::tanh(x);
    case Activation::kHardSigmoid: return clamp(alpha * x + beta, 0, 1);
    case Activation::kHardSwish: return x * clamp(x / 6 + 0.5, 0, 1);
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

struct Case {
  int64_t M, N, K, items = 1;
  bool bias = false, residual = false;
  Activation activation = Activation::kNone;
  float alpha = 0.1f, beta = 0.4f;
  int64_t a_gap = 0, c_gap = 0;
};

// a(item, m, k) of the products' A.
template <class A>
void check(const Case& c, Isa isa, int threads, std::mt19937& random, const Windows* windows, int64_t a_count, A&& a_at,
           int64_t item_step) {
  Workers workers(threads);
  const int64_t a_stride = c.K + c.a_gap, c_stride = c.N + c.c_gap, r_stride = c.N + 3;
  const Floats a(a_count, random), bias(c.N, random);
  std::vector<std::unique_ptr<Floats>> b, strips, out, residual;
  std::vector<Item> items;
  for (int64_t i = 0; i < c.items; ++i) {
    b.push_back(std::make_unique<Floats>(c.K * c.N, random));
    strips.push_back(std::make_unique<Floats>(strips_size(c.K, c.N)));
    out.push_back(std::make_unique<Floats>(c.M == 0 ? 0 : (c.M - 1) * c_stride + c.N));
    residual.push_back(std::make_unique<Floats>(c.M == 0 ? 0 : (c.M - 1) * r_stride + c.N, random));
    const bool turned = random() % 2 == 0;
    pack_strips(isa, b.back()->data(), turned ? 1 : c.N, turned ? c.K : 1, c.K, c.N, 0, (c.N + kStrip - 1) / kStrip,
                strips.back()->data());
    if (turned) {  // so that b is [K, N] below
      std::vector<float> straight(static_cast<size_t>(c.K * c.N));
      for (int64_t k = 0; k < c.K; ++k)
        for (int64_t n = 0; n < c.N; ++n) straight[static_cast<size_t>(k * c.N + n)] = (*b.back())[n * c.K + k];
      std::copy(straight.begin(), straight.end(), b.back()->data());
    }
    items.push_back({a.data() + i * item_step, strips.back()->data(), out.back()->data(),
                     c.bias ? bias.data() : nullptr, c.residual ? residual.back()->data() : nullptr});
  }
  multiply(workers, isa,
           {.items = items,
            .M = c.M,
            .N = c.N,
            .K = c.K,
            .a_stride = a_stride,
            .windows = windows,
            .c_stride = c_stride,
            .residual_stride = r_stride,
            .activation = c.activation,
            .alpha = c.alpha,
            .beta = c.beta});
  for (int64_t i = 0; i < c.items; ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_TRUE(out[at]->intact() && strips[at]->intact());
    for (int64_t m = 0; m < c.M; ++m)
      for (int64_t n = 0; n < c.N; ++n) {
        double sum = 0, size = 1;
        for (int64_t k = 0; k < c.K; ++k) {
          const double x = static_cast<double>(a_at(a.data() + i * item_step, m, k)) * (*b[at])[k * c.N + n];
          sum += x, size += std::abs(x);
        }
        if (c.bias) sum += bias[n];
        if (c.residual) sum += (*residual[at])[m * r_stride + n];
        const double expected = activated(c.activation, c.alpha, c.beta, sum);
        ASSERT_NEAR((*out[at])[m * c_stride + n], expected, 2e-6 * size)
            << to_string(isa) << " M " << c.M << " N " << c.N << " K " << c.K << " item " << i << " at " << m << ", "
            << n;
      }
    for (int64_t m = 0; m + 1 < c.M; ++m)  // between rows nothing is written
      for (int64_t n = c.N; n < c_stride; ++n) ASSERT_TRUE(std::isnan((*out[at])[m * c_stride + n]));
  }
}

void check_rows(const Case& c, std::mt19937& random) {
  const int64_t stride = c.K + c.a_gap, step = c.M * stride;
  for (const Isa isa : levels())
    for (const int threads : {1, 3})
      check(
          c, isa, threads, random, nullptr, step * c.items,
          [&](const float* a, int64_t m, int64_t k) { return a[m * stride + k]; }, step);
}

TEST(Igemm, EqualsAnIndependentProduct) {
  std::mt19937 random(std::random_device{}());
  for (const int64_t M : {1, 2, 3, 5, 6, 7, 13, 14, 15, 27, 28, 29, 100})
    for (const int64_t N : {1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 70})
      check_rows({.M = M,
                  .N = N,
                  .K = static_cast<int64_t>(1 + random() % 40),
                  .bias = random() % 2 == 0,
                  .residual = random() % 2 == 0,
                  .a_gap = static_cast<int64_t>(random() % 3),
                  .c_gap = static_cast<int64_t>(random() % 4)},
                 random);
}

TEST(Igemm, ColumnsThatLieInParts) {
  std::mt19937 random(std::random_device{}());
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 120; ++round) {
    Workers workers(1 + round % 3);
    const int64_t M = draw(1, 70), N = draw(1, 70);
    std::vector<std::unique_ptr<Floats>> memory;
    std::vector<Part> parts;
    int64_t K = 0;
    for (int64_t count = draw(1, 4); count > 0; --count) {
      const int64_t depth = round % 20 == 0 ? draw(300, 900) : draw(0, 40), gap = draw(0, 5);
      memory.push_back(std::make_unique<Floats>((M - 1) * (depth + gap) + depth, random));
      parts.push_back({memory.back()->data(), depth + gap, depth});
      K += depth;
    }
    const Floats b(K * N, random), bias(N, random), residual(M * N, random);
    for (const Isa isa : levels()) {
      const Floats strips(strips_size(K, N)), c(M * N);
      pack_strips(isa, b.data(), N, 1, K, N, 0, (N + kStrip - 1) / kStrip, strips.data());
      const Item item{nullptr, strips.data(), c.data(), bias.data(), residual.data()};
      multiply(workers, isa,
               {.items = {&item, 1},
                .M = M,
                .N = N,
                .K = K,
                .parts = parts,
                .c_stride = N,
                .residual_stride = N,
                .activation = Activation::kSilu});
      ASSERT_TRUE(c.intact());
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
          double sum = 0, size = 1;
          int64_t k = 0;
          for (const Part& part : parts)
            for (int64_t i = 0; i < part.depth; ++i, ++k) {
              const double x = static_cast<double>(part.a[m * part.stride + i]) * b[k * N + n];
              sum += x, size += std::abs(x);
            }
          const double expected = activated(Activation::kSilu, 0, 0, sum + bias[n] + residual[m * N + n]);
          ASSERT_NEAR(c[m * N + n], expected, 2e-6 * size) << to_string(isa) << " M " << M << " N " << N << " K " << K;
        }
    }
  }
}

TEST(Igemm, LongRowsInPasses) {
  std::mt19937 random(std::random_device{}());
  for (const int64_t K : {767, 768, 769, 1024, 1537, 3000})
    check_rows({.M = 33, .N = 67, .K = K, .bias = true, .residual = true, .activation = Activation::kRelu}, random);
}

TEST(Igemm, RowsAPageApartArePacked) {
  std::mt19937 random(std::random_device{}());
  check_rows({.M = 40, .N = 80, .K = 1000, .bias = true, .a_gap = 24}, random);
  check_rows({.M = 300, .N = 64, .K = 1024}, random);
}

TEST(Igemm, ManyItemsAndEmptyOnes) {
  std::mt19937 random(std::random_device{}());
  check_rows({.M = 20, .N = 24, .K = 30, .items = 7, .residual = true}, random);
  check_rows({.M = 5, .N = 40, .K = 0, .bias = true}, random);
  check_rows({.M = 0, .N = 40, .K = 9}, random);
}

TEST(Igemm, Activations) {
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i <= static_cast<int>(Activation::kGeluTanh); ++i)
    check_rows({.M = 19, .N = 37, .K = 11, .bias = true, .residual = true, .activation = static_cast<Activation>(i)},
               random);
}

TEST(Igemm, NaNIsNotLost) {
  Workers workers(1);
  for (const Isa isa : levels())
    for (const Activation activation : {Activation::kRelu, Activation::kClip}) {
      const float a[1] = {std::nanf("")}, b[1] = {1};
      float strips[kStrip], c[1] = {0};
      pack_strips(isa, b, 1, 1, 1, 1, 0, 1, strips);
      const Item item{a, strips, c};
      multiply(workers, isa,
               {.items = {&item, 1},
                .M = 1,
                .N = 1,
                .K = 1,
                .a_stride = 1,
                .c_stride = 1,
                .activation = activation,
                .beta = 6});
      EXPECT_TRUE(std::isnan(c[0]));
    }
}

TEST(Igemm, WindowsAreWhatAConvolutionReads) {
  std::mt19937 random(std::random_device{}());
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 150; ++round) {
    Windows w;
    const int64_t images = draw(1, 2), groups = draw(0, 3) == 0 ? 2 : 1;
    w.channels = round % 10 == 0 ? draw(90, 300) : draw(1, 40);
    w.pixel_stride = w.channels * groups;
    int64_t end[2];
    w.height = draw(1, 12), w.width = draw(1, 40);
    for (int i = 0; i < 2; ++i) {
      w.kernel[i] = draw(1, 4), w.stride[i] = draw(1, 3), w.dilation[i] = draw(1, 2);
      w.begin[i] = draw(0, 3), end[i] = draw(0, 3);
      const int64_t span = (w.kernel[i] - 1) * w.dilation[i] + 1;
      int64_t& size = i == 0 ? w.height : w.width;
      size = std::max(size, span - w.begin[i] - end[i]);
      (i == 0 ? w.height_out : w.width_out) = (size + w.begin[i] + end[i] - span) / w.stride[i] + 1;
    }
    const Case c{.M = images * w.height_out * w.width_out,
                 .N = draw(1, 70),
                 .K = w.depth(),
                 .items = groups,
                 .bias = draw(0, 1) == 1,
                 .residual = draw(0, 1) == 1};
    const auto at = [&](const float* a, int64_t m, int64_t k) {
      const int64_t x = m % w.width_out * w.stride[1] - w.begin[1] + k / w.channels % w.kernel[1] * w.dilation[1];
      const int64_t y =
          m / w.width_out % w.height_out * w.stride[0] - w.begin[0] + k / w.channels / w.kernel[1] * w.dilation[0];
      if (x < 0 || y < 0 || x >= w.width || y >= w.height) return 0.f;
      return a[((m / w.width_out / w.height_out * w.height + y) * w.width + x) * w.pixel_stride + k % w.channels];
    };
    for (const Isa isa : levels()) check(c, isa, 1 + round % 2, random, &w, images * w.image_stride(), at, w.channels);
  }
}

}  // namespace
}  // namespace bolide::igemm
