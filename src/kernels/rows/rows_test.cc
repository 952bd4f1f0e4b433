// Every row function of every level this processor has, beside f64, on rows of all small lengths that end at a page
// which faults.
#include "kernels/rows/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/testing/guarded.h"

namespace bolide {
namespace {

using testing::Guarded;

class Row {
 public:
  explicit Row(int64_t count)
      : memory_(static_cast<size_t>(count) * 4), data_(reinterpret_cast<float*>(memory_.data())) {}
  Row(int64_t count, std::mt19937_64& random, float low, float high) : Row(count) {
    std::uniform_real_distribution<float> values(low, high);
    for (int64_t i = 0; i < count; ++i) data_[i] = values(random);
  }
  float* data() { return data_; }
  float operator[](int64_t i) const { return data_[i]; }
  bool intact() const { return memory_.intact(); }

 private:
  Guarded memory_;
  float* data_;
};

std::vector<const isa::RowFunctions*> levels() {
  std::vector<const isa::RowFunctions*> list;
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512})
    if (supports(cpu, isa)) list.push_back(row_functions(isa));
  return list;
}

double unary(int kind, double x, const float* p) {
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const auto clip = [](double v, double low, double high) { return std::min(high, std::max(low, v)); };
  switch (kind) {
    case isa::kRowRelu: return std::max(x, 0.0);
    case isa::kRowLeakyRelu: return x < 0 ? static_cast<double>(p[0]) * x : x;
    case isa::kRowSigmoid: return sigmoid(x);
    case isa::kRowTanh: return std::tanh(x);
    case isa::kRowGelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case isa::kRowGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case isa::kRowSilu: return x * sigmoid(x);
    case isa::kRowErf: return std::erf(x);
    case isa::kRowExp: return std::exp(x);
    case isa::kRowSqrt: return std::sqrt(x);
    case isa::kRowReciprocal: return 1 / x;
    case isa::kRowNegate: return -x;
    case isa::kRowAbs: return std::abs(x);
    case isa::kRowHardSigmoid: return clip(static_cast<double>(p[0]) * x + static_cast<double>(p[1]), 0, 1);
    case isa::kRowHardSwish: return x * clip(x / 6 + 0.5, 0, 1);
    case isa::kRowClip: return clip(x, static_cast<double>(p[0]), static_cast<double>(p[1]));
    default: return x * x;
  }
}

TEST(Rows, Unary) {
  std::mt19937_64 random(std::random_device{}());
  for (const isa::RowFunctions* rows : levels())
    for (int kind = 0; kind < isa::kRowUnaries; ++kind)
      for (int64_t count = 0; count < 70; ++count) {
        const bool positive = kind == isa::kRowSqrt;
        Row x(count, random, positive ? 0.0f : -6.0f, 6.0f), y(count);
        const float p[2] = {kind == isa::kRowClip ? -1.5f : 0.3f, kind == isa::kRowClip ? 2.5f : 0.4f};
        rows->unary[kind](x.data(), y.data(), count, p);
        for (int64_t i = 0; i < count; ++i) {
          const double expected = unary(kind, static_cast<double>(x[i]), p);
          // What cancels (the tail of tanh's GELU) is right to the magnitude of its input.
          EXPECT_NEAR(static_cast<double>(y[i]), expected, 1e-6 * std::abs(expected) + 4e-7) << kind << " of " << x[i];
        }
        ASSERT_TRUE(x.intact() && y.intact()) << kind << " " << count;
        if (rows->finish[kind] == nullptr) continue;
        rows->finish[kind](x.data(), count);
        EXPECT_EQ(std::memcmp(x.data(), y.data(), static_cast<size_t>(count) * 4), 0) << kind << " in place";
      }
}

TEST(Rows, SoftmaxOfColumns) {
  std::mt19937_64 random(std::random_device{}());
  for (const isa::RowFunctions* rows : levels())
    for (int round = 0; round < 200; ++round) {
      const auto n = static_cast<int64_t>(1 + random() % 20), columns = static_cast<int64_t>(1 + random() % 70);
      const int64_t stride = columns + static_cast<int64_t>(random() % 5), size = (n - 1) * stride + columns;
      Row x(size, random, -9.0f, 9.0f), y(size), logs(size);
      const auto odd = static_cast<int64_t>(random() % 8);  // 0: a NaN in column 0, 1: an infinity
      if (odd < 2)
        x.data()[static_cast<int64_t>(random() % static_cast<uint64_t>(n)) * stride] = odd == 0 ? NAN : INFINITY;
      std::fill_n(y.data(), size, 7.0f), std::fill_n(logs.data(), size, 7.0f);
      rows->softmax_columns(x.data(), y.data(), n, stride, columns);
      rows->log_softmax_columns(x.data(), logs.data(), n, stride, columns);
      ASSERT_TRUE(x.intact() && y.intact() && logs.intact());
      for (int64_t c = 0; c < stride; ++c) {
        double most = -INFINITY, total = 0;
        for (int64_t i = 0; c < columns && i < n; ++i) most = std::max(most, static_cast<double>(x[i * stride + c]));
        for (int64_t i = 0; c < columns && i < n; ++i) total += std::exp(static_cast<double>(x[i * stride + c]) - most);
        for (int64_t i = 0; i < n && i * stride + c < size; ++i) {
          const int64_t at = i * stride + c;
          if (c >= columns) {
            EXPECT_TRUE(y[at] == 7 && logs[at] == 7) << "between the rows";
          } else if (odd < 2 && c == 0) {
            EXPECT_TRUE(std::isnan(y[at]) && std::isnan(logs[at]));
          } else {
            const double shift = static_cast<double>(x[at]) - most;
            EXPECT_NEAR(static_cast<double>(y[at]), std::exp(shift) / total, 1e-6);
            EXPECT_NEAR(static_cast<double>(logs[at]), shift - std::log(total), 4e-6);
          }
        }
      }
    }
}

TEST(Rows, ErfIsRightNearZeroAndFarOut) {
  for (const isa::RowFunctions* rows : levels())
    for (float x = 1e-30f; x < 40; x *= 1.37f)
      for (const float sign : {1.0f, -1.0f}) {
        const float from = x * sign;
        float to = 0;
        rows->unary[isa::kRowErf](&from, &to, 1, nullptr);
        const double expected = std::erf(static_cast<double>(from));
        EXPECT_NEAR(static_cast<double>(to), expected, 5e-7 * std::abs(expected)) << from;
      }
}

TEST(Rows, NanAndInfinitiesPass) {
  const float odd[] = {NAN, INFINITY, -INFINITY};
  for (const isa::RowFunctions* rows : levels())
    for (const int kind :
         {isa::kRowRelu, isa::kRowSigmoid, isa::kRowTanh, isa::kRowErf, isa::kRowExp, isa::kRowGelu, isa::kRowClip}) {
      float y[3];
      const float p[] = {-1, 1};
      rows->unary[kind](odd, y, 3, p);
      EXPECT_TRUE(std::isnan(y[0])) << kind;
      if (kind == isa::kRowGelu) continue;  // of -infinity: 0 or NaN, as the product goes
      EXPECT_EQ(static_cast<double>(y[1]), unary(kind, INFINITY, p)) << kind;
      EXPECT_EQ(static_cast<double>(y[2]), unary(kind, -INFINITY, p)) << kind;
    }
}

TEST(Rows, Binary) {
  std::mt19937_64 random(std::random_device{}());
  const auto f = [](int kind, float a, float b) {
    switch (kind) {
      case isa::kRowAdd: return a + b;
      case isa::kRowSubtract: return a - b;
      case isa::kRowMultiply: return a * b;
      case isa::kRowDivide: return a / b;
      case isa::kRowMax: return std::max(a, b);
      default: return std::min(a, b);
    }
  };
  for (const isa::RowFunctions* rows : levels())
    for (int kind = 0; kind < isa::kRowBinaries; ++kind)
      for (int64_t count = 0; count < 70; ++count) {
        Row a(count, random, -4, 4), b(count, random, 0.5f, 4), y(count), right(count), left(count);
        rows->binary[kind](a.data(), b.data(), y.data(), count);
        rows->binary_right[kind](a.data(), 1.7f, right.data(), count);
        rows->binary_left[kind](1.7f, b.data(), left.data(), count);
        for (int64_t i = 0; i < count; ++i) {
          EXPECT_EQ(y[i], f(kind, a[i], b[i]));
          EXPECT_EQ(right[i], f(kind, a[i], 1.7f));
          EXPECT_EQ(left[i], f(kind, 1.7f, b[i]));
        }
        ASSERT_TRUE(y.intact() && right.intact() && left.intact());
      }
}

TEST(Rows, Softmax) {
  std::mt19937_64 random(std::random_device{}());
  for (const isa::RowFunctions* rows : levels())
    for (int64_t count = 1; count < 150; ++count) {
      Row x(count, random, -9, 9), y(count), logs(count);
      if (count > 3) x.data()[count / 2] = -INFINITY;
      rows->softmax(x.data(), y.data(), count);
      rows->log_softmax(x.data(), logs.data(), count);
      double most = -INFINITY, sum = 0;
      for (int64_t i = 0; i < count; ++i) most = std::max(most, static_cast<double>(x[i]));
      for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]) - most);
      for (int64_t i = 0; i < count; ++i) {
        const double log = static_cast<double>(x[i]) - most - std::log(sum);
        EXPECT_NEAR(static_cast<double>(y[i]), std::exp(log), 1e-6);
        if (std::isfinite(x[i])) {
          EXPECT_NEAR(static_cast<double>(logs[i]), log, 4e-6);
        }
      }
      ASSERT_TRUE(y.intact() && logs.intact() && x.intact());
    }
}

TEST(Rows, Norm) {
  std::mt19937_64 random(std::random_device{}());
  for (const isa::RowFunctions* rows : levels())
    for (int64_t count = 1; count < 140; ++count) {
      Row x(count, random, 3, 7), skip(count, random, -1, 1), plus(count, random, -1, 1), scale(count, random, -2, 2),
          bias(count, random, -1, 1), y(count), sum(count);
      const auto pick = [&](Row& row) { return random() % 2 == 0 ? row.data() : nullptr; };
      float mean = 0, inverse = 0;
      isa::NormRow row{.x = x.data(),
                       .skip = pick(skip),
                       .skip_bias = pick(plus),
                       .scale = scale.data(),
                       .bias = pick(bias),
                       .sum = random() % 2 == 0 ? sum.data() : y.data(),
                       .y = y.data(),
                       .mean = &mean,
                       .inverse = &inverse,
                       .count = count,
                       .epsilon = 1e-3f,
                       .centred = random() % 2 == 0};
      std::vector<double> t;
      double total = 0, squares = 0;
      for (int64_t i = 0; i < count; ++i) {
        t.push_back(static_cast<double>(x[i]));
        if (row.skip != nullptr) t.back() += static_cast<double>(skip[i]);
        if (row.skip_bias != nullptr) t.back() += static_cast<double>(plus[i]);
        total += t.back();
      }
      const double centre = row.centred ? total / static_cast<double>(count) : 0;
      for (const double v : t) squares += (v - centre) * (v - centre);
      const double by = 1 / std::sqrt(squares / static_cast<double>(count) + 1e-3);
      rows->norm(row);
      for (int64_t i = 0; i < count; ++i) {
        const double normal = (t[static_cast<size_t>(i)] - centre) * by * static_cast<double>(scale[i]);
        EXPECT_NEAR(static_cast<double>(y[i]), normal + (row.bias != nullptr ? static_cast<double>(bias[i]) : 0.0),
                    2e-5 * (1 + by));
      }
      EXPECT_NEAR(static_cast<double>(mean), centre, 1e-5);
      EXPECT_NEAR(static_cast<double>(inverse), by, 2e-5 * by + 2e-4 * by * by * by);
      ASSERT_TRUE(y.intact() && sum.intact() && x.intact());
    }
}

TEST(Rows, Rotate) {
  std::mt19937_64 random(std::random_device{}());
  for (const isa::RowFunctions* rows : levels())
    for (int64_t half = 1; half < 80; ++half) {
      Row x(2 * half, random, -3, 3), cosines(half, random, -1, 1), sines(half, random, -1, 1), y(2 * half);
      rows->rotate(x.data(), cosines.data(), sines.data(), y.data(), half);
      for (int64_t i = 0; i < half; ++i) {
        const auto a = static_cast<double>(x[i]), b = static_cast<double>(x[half + i]);
        const auto c = static_cast<double>(cosines[i]), s = static_cast<double>(sines[i]);
        EXPECT_NEAR(static_cast<double>(y[i]), c * a - s * b, 1e-6);
        EXPECT_NEAR(static_cast<double>(y[half + i]), s * a + c * b, 1e-6);
      }
      rows->rotate(x.data(), cosines.data(), sines.data(), x.data(), half);
      for (int64_t i = 0; i < 2 * half; ++i) EXPECT_EQ(x[i], y[i]);
      ASSERT_TRUE(x.intact() && y.intact() && cosines.intact() && sines.intact());
    }
}

TEST(Rows, SumsAndTransposes) {
  std::mt19937_64 random(std::random_device{}());
  for (const isa::RowFunctions* rows : levels())
    for (int64_t count = 1; count < 90; ++count) {
      Row x(count, random, -3, 5), y(count);
      double sum = 0;
      float most = -INFINITY;
      for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]), most = std::max(most, x[i]);
      EXPECT_NEAR(static_cast<double>(rows->sum(x.data(), count)), sum, 1e-4);
      EXPECT_EQ(rows->max(x.data(), count), most);
      rows->affine(x.data(), 2, -1, y.data(), count);
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(y[i], x[i] * 2 - 1);
      const int64_t columns = 1 + static_cast<int64_t>(random() % 50);
      Row from(count * columns, random, 0, 1), to(count * columns);
      rows->transpose(reinterpret_cast<uint32_t*>(from.data()), columns, count, columns,
                      reinterpret_cast<uint32_t*>(to.data()), count);
      for (int64_t r = 0; r < count; ++r)
        for (int64_t c = 0; c < columns; ++c) ASSERT_EQ(to[c * count + r], from[r * columns + c]);
      x.data()[static_cast<int64_t>(random() % static_cast<uint64_t>(count))] = NAN;
      EXPECT_TRUE(std::isnan(rows->max(x.data(), count)));
      ASSERT_TRUE(to.intact() && y.intact());
    }
}

}  // namespace
}  // namespace bolide
