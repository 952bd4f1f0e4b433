// Constant matrices of every level this processor has, f32 and bf16, beside f64.
#include "kernels/linear/packed_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/testing/guarded.h"
#include "tensor/half.h"

namespace bolide {
namespace {

void negate(float* piece, int64_t count) {
  for (int64_t i = 0; i < count; ++i) piece[i] = -piece[i];
}

TEST(PackedMatrix, AgreesWithSums) {
  std::mt19937_64 random(std::random_device{}());
  Workers workers(3);
  const auto best = make_cpu_device(1, std::nullopt);
  ASSERT_TRUE(best);
  const auto below = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx}) {
    if ((*best)->info().isa < isa) continue;
    const auto device = make_cpu_device(1, isa);
    ASSERT_TRUE(device);
    for (int round = 0; round < 40; ++round) {
      const int64_t M = below(40), N = below(100), K = below(200);
      const DType compute = round % 2 == 0 ? DType::kF32 : DType::kBF16;
      const bool turned = random() % 2 == 0;
      std::normal_distribution<float> normal;
      std::vector<float> w(static_cast<size_t>(K * N)), bias(static_cast<size_t>(N));
      std::vector<float> residual(static_cast<size_t>(M * N));
      for (auto* list : {&w, &bias, &residual})
        for (float& value : *list) value = normal(random);
      testing::Guarded x(static_cast<size_t>(M * K) * 4), out(static_cast<size_t>(M * N) * 4);
      auto* const from = reinterpret_cast<float*>(x.data());
      auto* const to = reinterpret_cast<float*>(out.data());
      for (int64_t i = 0; i < M * K; ++i) from[i] = normal(random);
      const PackedMatrix::Source source{w.data(), K, N, turned ? 1 : N, turned ? K : 1};
      auto matrix = PackedMatrix::make(source, compute, (*device)->info(), workers);
      ASSERT_TRUE(matrix && *matrix != nullptr);
      testing::Guarded workspace((*matrix)->workspace(M, workers.threads()));
      const bool biased = random() % 2 == 0, added = random() % 2 == 0, finished = random() % 2 == 0;
      (*matrix)->run({.rows = M,
                      .x = from,
                      .x_stride = K,
                      .out = to,
                      .out_stride = N,
                      .bias = biased ? bias.data() : nullptr,
                      .residual = added ? residual.data() : nullptr,
                      .residual_stride = N,
                      .finish = finished ? negate : nullptr},
                     workspace.bytes(), workers);
      for (int64_t i = 0; i < M * N; ++i) {
        double sum = 0, magnitude = 1;
        for (int64_t k = 0; k < K; ++k) {
          const double term =
              static_cast<double>(from[i / N * K + k]) *
              static_cast<double>(w[static_cast<size_t>(k * source.k_stride + i % N * source.n_stride)]);
          sum += term, magnitude += std::abs(term);
        }
        if (biased) sum += static_cast<double>(bias[static_cast<size_t>(i % N)]);
        if (added) sum += static_cast<double>(residual[static_cast<size_t>(i)]);
        // Each factor is rounded to 8 bits.
        const double bound = compute == DType::kBF16 ? 0.008 : 1e-6;
        ASSERT_NEAR(static_cast<double>(to[i]), finished ? -sum : sum, bound * magnitude) << (*matrix)->kernel();
      }
      ASSERT_TRUE(x.intact() && out.intact() && workspace.intact());
    }
  }
}

}  // namespace
}  // namespace bolide
