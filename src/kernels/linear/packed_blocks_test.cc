// Blocks of 4- and 8-bit codes with f32 scales: every level of this processor beside f64, over odd shapes, with
// whatever bytes behind the last element of a row.
#include "kernels/linear/packed_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/cpu.h"
#include "kernels/linear/rounding.h"
#include "kernels/testing/guarded.h"

namespace bolide {
namespace {

using testing::Guarded;
using Random = std::mt19937_64;

int64_t below(Random& random, int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); }

struct Matrix {
  PackedBlocks::Source source;
  std::vector<uint8_t> codes, zeros;
  std::vector<float> scales;

  Matrix(Random& random, int64_t n, int64_t k, int bits, int64_t block, bool has_zeros) {
    source = {.n = n, .k = k, .bits = bits, .block = block};
    const int64_t blocks = source.blocks();
    codes.resize(static_cast<size_t>(n * blocks * block * bits / 8));
    for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random());
    std::normal_distribution<float> normal;
    scales.resize(static_cast<size_t>(n * blocks));
    for (float& scale : scales) scale = normal(random) * 1e-3f;
    source.codes = codes.data(), source.scales = scales.data();
    if (!has_zeros) return;
    zeros.resize(static_cast<size_t>(n * ((blocks * bits + 7) / 8)));
    for (uint8_t& byte : zeros) byte = static_cast<uint8_t>(random());
    source.zeros = zeros.data();
  }
  // Of one weight. `sum`: of its code and its zero point in place of their difference: what is added up and what is
  // subtracted from the sum, so the scale of its rounding errors.
  double at(int64_t row, int64_t j, bool sum = false) const {
    const int64_t blocks = source.blocks(), b = j / source.block;
    const auto read = [&](const std::vector<uint8_t>& from, int64_t base, int64_t i) {
      return source.bits == 8 ? from[static_cast<size_t>(base + i)]
                              : from[static_cast<size_t>(base + i / 2)] >> (i % 2 * 4) & 15;
    };
    const int zero =
        zeros.empty() ? (source.bits == 4 ? 8 : 128) : read(zeros, row * ((blocks * source.bits + 7) / 8), b);
    const int code = read(codes, row * blocks * source.block * source.bits / 8, j);
    return static_cast<double>(scales[static_cast<size_t>(row * blocks + b)]) * (sum ? code + zero : code - zero);
  }
};

std::vector<Isa> levels() {
  std::vector<Isa> list;
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kAvx2, Isa::kVnni, Isa::kAmx})
    if (supports(cpu, isa)) list.push_back(isa);
  return list;
}

void check(Random& random, const Matrix& m, Isa isa, bool int8, int64_t rows, bool has_bias) {
  Workers workers(3);
  const auto device = make_cpu_device(3, isa);
  auto packed = PackedBlocks::make(m.source, int8, (*device)->info(), workers);
  ASSERT_TRUE(packed) << packed.error().text;
  ASSERT_NE(*packed, nullptr);
  const int64_t n = m.source.n, k = m.source.k, out_stride = n + below(random, 3);
  std::normal_distribution<float> normal;
  Guarded x_memory(static_cast<size_t>(rows * k) * 4), bias_memory(static_cast<size_t>(n) * 4);
  Guarded out_memory(static_cast<size_t>((rows - 1) * out_stride + n) * 4);
  Guarded workspace((*packed)->workspace(rows, workers.threads()));
  auto* x = reinterpret_cast<float*>(x_memory.data());
  auto* bias = reinterpret_cast<float*>(bias_memory.data());
  auto* out = reinterpret_cast<float*>(out_memory.data());
  for (int64_t i = 0; i < rows * k; ++i) x[i] = normal(random);
  for (int64_t i = 0; i < n; ++i) bias[i] = normal(random);
  (*packed)->run(
      {.rows = rows, .x = x, .x_stride = k, .out = out, .out_stride = out_stride, .bias = has_bias ? bias : nullptr},
      workspace.bytes(), workers);
  EXPECT_TRUE(x_memory.intact() && out_memory.intact() && workspace.intact() && bias_memory.intact());
  std::vector<double> rounded(static_cast<size_t>(k));
  for (int64_t r = 0; r < rows; ++r) {
    round_token(int8 ? Compute::kInt8 : Compute::kF32, InputRounding::kNone, x + r * k, k, rounded.data());
    for (int64_t i = 0; i < n; ++i) {
      double sum = has_bias ? static_cast<double>(bias[i]) : 0, size = std::abs(sum);
      for (int64_t j = 0; j < k; ++j) {
        sum += rounded[static_cast<size_t>(j)] * m.at(i, j);
        size += std::abs(rounded[static_cast<size_t>(j)] * m.at(i, j, /*sum=*/true));
      }
      ASSERT_NEAR(static_cast<double>(out[r * out_stride + i]), sum, 4e-6 * size + 1e-12)
          << "row " << r << " column " << i << " of " << rows << " x " << n << " x " << k << ", bits " << m.source.bits
          << " block " << m.source.block << (m.zeros.empty() ? "" : " zeros") << (int8 ? " int8" : " f32") << " isa "
          << static_cast<int>(isa);
    }
  }
}

TEST(PackedBlocks, Products) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 120; ++round) {
      const int bits = random() % 3 == 0 ? 8 : 4;
      int64_t block = int64_t{16} << below(random, 6);  // to 512
      if (bits == 8) block = std::max<int64_t>(block, 32);
      const int64_t n = 1 + below(random, 70), k = 1 + below(random, random() % 2 == 0 ? 60 : 700);
      const int64_t rows = 1 + below(random, random() % 2 == 0 ? 5 : 30);
      const Matrix m(random, n, k, bits, block, random() % 2 == 0);
      check(random, m, isa, random() % 2 == 0, rows, random() % 2 == 0);
    }
}

TEST(PackedBlocks, AreNotMadeOfWhatStripsDoNotHold) {
  Random random(1);
  Workers workers(1);
  const auto device = make_cpu_device(1, Isa::kVnni);
  for (const auto& [bits, block] : {std::pair{8, 16}, {4, 8}, {2, 32}, {4, 0}, {4, 48}}) {
    Matrix m(random, 3, 64, 4, 16, false);
    m.source.bits = bits, m.source.block = block;
    auto packed = PackedBlocks::make(m.source, true, (*device)->info(), workers);
    ASSERT_TRUE(packed);
    EXPECT_EQ(*packed, nullptr) << bits << " bits, blocks of " << block;
  }
}

}  // namespace
}  // namespace bolide
