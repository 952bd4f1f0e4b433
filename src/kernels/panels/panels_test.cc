// Products of activations and attention of every level this processor has, beside f64, over odd shapes.
#include "kernels/panels/panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/testing/guarded.h"

namespace bolide {
namespace {

using testing::Guarded;

std::vector<const isa::PanelFunctions*> levels() {
  std::vector<const isa::PanelFunctions*> list;
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512})
    if (supports(cpu, isa)) list.push_back(panel_functions(isa));
  return list;
}

class Values {
 public:
  explicit Values(int64_t count)
      : memory_(static_cast<size_t>(count) * 4), data_(reinterpret_cast<float*>(memory_.data())) {}
  Values(int64_t count, std::mt19937_64& random) : Values(count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) data_[i] = normal(random);
  }
  float* data() { return data_; }
  double operator[](int64_t i) const { return static_cast<double>(data_[i]); }
  bool intact() const { return memory_.intact(); }

 private:
  Guarded memory_;
  float* data_;
};

int64_t below(std::mt19937_64& random, int64_t most) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
}

TEST(Panels, Multiply) {
  std::mt19937_64 random(std::random_device{}());
  Workers workers(3);
  for (const isa::PanelFunctions* panels : levels())
    for (int round = 0; round < 60; ++round) {
      const int64_t m = 1 + below(random, 60), n = 1 + below(random, 150), k = 1 + below(random, 90);
      const int64_t count = 1 + below(random, 4);
      const bool turned = random() % 2 == 0;
      PanelBatch batch{.count = count, .m = m, .n = n, .k = k};
      batch.b_row = turned ? 1 : n, batch.b_column = turned ? k : 1, batch.alpha = 0.5f;
      Values a(count * m * k, random), b(count * k * n, random), out(count * m * n);
      Guarded workspace(panel_workspace(*panels, batch, workers.threads()));
      multiply_panels(
          *panels, batch,
          [&](int64_t i) {
            return PanelProduct{a.data() + i * m * k, k, b.data() + i * k * n, out.data() + i * m * n, n};
          },
          workspace.bytes(), workers);
      for (int64_t i = 0; i < count * m * n; ++i) {
        const int64_t p = i / (m * n), row = i / n % m, column = i % n;
        double sum = 0, magnitude = 0;
        for (int64_t x = 0; x < k; ++x) {
          const double term = a[p * m * k + row * k + x] * b[p * k * n + x * batch.b_row + column * batch.b_column];
          sum += term, magnitude += std::abs(term);
        }
        ASSERT_NEAR(out[i], sum / 2, 1e-6 * magnitude + 1e-6) << m << " " << n << " " << k << " " << turned;
      }
      ASSERT_TRUE(a.intact() && b.intact() && out.intact() && workspace.intact());
    }
}

TEST(Panels, Attend) {
  std::mt19937_64 random(std::random_device{}());
  Workers workers(3);
  for (const isa::PanelFunctions* panels : levels())
    for (int round = 0; round < 120; ++round) {
      const int64_t B = 1 + below(random, 2), H = 1 + below(random, 3);
      const int64_t S = 1 + below(random, random() % 2 == 0 ? 10 : 130);
      const int64_t L = below(random, 10) == 0 ? 0 : 1 + below(random, 200), D = 1 + below(random, 80),
                    Dv = 1 + below(random, 80);
      Values q(B * S * H * D, random), k(B * L * H * D, random), v(B * L * H * Dv, random), out(B * S * H * Dv);
      const bool biased = random() % 2 == 0, causal = random() % 3 == 0;
      const bool one_row = random() % 2 == 0;
      const int64_t past = below(random, 3) == 0 ? below(random, 40) : 0;  // queries that are no keys' first ones
      const int64_t window = causal && random() % 2 == 0 ? 1 + below(random, 50) : 0;
      const float cap = random() % 3 == 0 ? 1.5f : 0;
      Values bias((one_row ? 1 : S) * L, random), sinks(S, random);
      const bool has_sinks = random() % 3 == 0;
      for (int64_t j = 0; j < L / 3; ++j) bias.data()[below(random, L)] = -INFINITY;
      // Rows of all heads side by side.
      const auto task = [&](int64_t b, int64_t h) {
        isa::AttendTask t{};
        t.q = q.data() + b * S * H * D + h * D, t.q_stride = H * D;
        t.k = k.data() + b * L * H * D + h * D, t.k_stride = H * D;
        t.v = v.data() + b * L * H * Dv + h * Dv, t.v_stride = H * Dv;
        t.out = out.data() + b * S * H * Dv + h * Dv, t.out_stride = H * Dv;
        t.rows = S, t.keys = L, t.dim = D, t.value_dim = Dv, t.scale = 0.3f;
        t.bias = biased ? bias.data() : nullptr, t.bias_stride = one_row ? 0 : L;
        t.seen = causal ? past + 1 : L;
        t.window = window, t.softcap = cap;
        t.sinks = has_sinks ? sinks.data() : nullptr, t.sinks_stride = 1;
        return t;
      };
      Guarded workspace(attend_workspace(*panels, task(0, 0), workers.threads()));
      attend_heads(*panels, {B, H}, task, workspace.bytes(), workers);
      for (int64_t b = 0; b < B; ++b)
        for (int64_t h = 0; h < H; ++h)
          for (int64_t i = 0; i < S; ++i) {
            std::vector<double> weights(static_cast<size_t>(L), -INFINITY);
            double most = -INFINITY, sum = 0;
            for (int64_t j = 0; j < L && (!causal || j <= past + i); ++j) {
              if (window > 0 && j < past + i + 1 - window) continue;
              double score = 0;
              for (int64_t d = 0; d < D; ++d)
                score += q[((b * S + i) * H + h) * D + d] * k[((b * L + j) * H + h) * D + d];
              score *= static_cast<double>(0.3f);
              if (cap > 0) score = static_cast<double>(cap) * std::tanh(score / static_cast<double>(cap));
              if (biased) score += bias[(one_row ? 0 : i * L) + j];
              weights[static_cast<size_t>(j)] = score;
              most = std::max(most, score);
            }
            for (double& w : weights) w = std::isinf(most) ? 0 : std::exp(w - most), sum += w;
            if (has_sinks && sum > 0) sum += std::exp(sinks[i] - most);
            for (int64_t d = 0; d < Dv; ++d) {
              double expected = 0;
              for (int64_t j = 0; j < L; ++j)
                expected += weights[static_cast<size_t>(j)] * v[((b * L + j) * H + h) * Dv + d];
              if (sum > 0) expected /= sum;
              ASSERT_NEAR(out[((b * S + i) * H + h) * Dv + d], expected, 2e-5)
                  << "S " << S << " L " << L << " D " << D << " Dv " << Dv << " row " << i << (causal ? " causal" : "");
            }
          }
      ASSERT_TRUE(q.intact() && k.intact() && v.intact() && out.intact() && bias.intact() && workspace.intact());
      ASSERT_TRUE(sinks.intact());
    }
}

}  // namespace
}  // namespace bolide
