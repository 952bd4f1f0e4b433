#include "kernels/moe/routing.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace bolide {
namespace {

// e^x to 2 units in the last place, without branches, so that loops over it vectorise. Below -87 and above 88 it stays
// at the value there; NaN stays NaN.
inline float fast_exp(float x) {
  const float clamped = x < -87.f ? -87.f : x > 88.f ? 88.f : x;
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts, so that the remainder is exact to the last place.
  const float r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
  const float p =
      1.f + r * (1.f + r * (0.5f + r * (0.166666672f + r * (0.0416664556f + r * (0.00833337f + r * 0.00139304f)))));
  // n as an integer, from the last bits of `shifted`: a NaN, which has no integer, gives some power of two.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

template <class F>
void each(const float* gate, const float* up, int64_t n, float* hidden, F f) {
  for (int64_t i = 0; i < n; ++i) hidden[i] = f(gate[i]) * up[i];
}

}  // namespace

void choose_experts(const MoeFfn& op, float* scores, int32_t* experts, float* weights) {
  const float largest = *std::max_element(scores, scores + op.experts);
  double sum = 0;
  for (int64_t i = 0; i < op.experts; ++i) {
    const double e = std::exp(static_cast<double>(scores[i]) - static_cast<double>(largest));
    sum += e;
    scores[i] = static_cast<float>(e);
  }
  double chosen = 0;
  for (int64_t j = 0; j < op.top_k; ++j) {
    // A NaN score never wins; expert 0 stands in if nothing else is left, and carries the NaN.
    int64_t best = 0;
    float best_score = -1;
    for (int64_t i = 0; i < op.experts; ++i) {
      const bool taken = std::find(experts, experts + j, static_cast<int32_t>(i)) != experts + j;
      if (!taken && scores[i] > best_score) best = i, best_score = scores[i];
    }
    experts[j] = static_cast<int32_t>(best);
    weights[j] = scores[best];
    chosen += static_cast<double>(scores[best]);
  }
  const double total = op.renormalise ? chosen : sum;
  for (int64_t j = 0; j < op.top_k; ++j) weights[j] = static_cast<float>(static_cast<double>(weights[j]) / total);
}

double activate(ActKind kind, double x) {
  switch (kind) {
    case ActKind::kSilu: return x / (1 + std::exp(-x));
    case ActKind::kGelu: return 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
    case ActKind::kGeluTanh: return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case ActKind::kRelu: return x > 0 ? x : 0;
  }
  return x;
}

void activate_row(ActKind kind, const float* gate, const float* up, int64_t n, float* hidden) {
  switch (kind) {
    case ActKind::kSilu: return each(gate, up, n, hidden, [](float x) { return x / (1.f + fast_exp(-x)); });
    case ActKind::kGelu:
      return each(gate, up, n, hidden, [](float x) { return 0.5f * x * (1.f + std::erf(x * 0.707106781f)); });
    case ActKind::kGeluTanh:
      // 0.5 (1 + tanh y) = 1 / (1 + e^-2y)
      return each(gate, up, n, hidden,
                  [](float x) { return x / (1.f + fast_exp(-1.5957691216f * (x + 0.044715f * x * x * x))); });
    case ActKind::kRelu: return each(gate, up, n, hidden, [](float x) { return x > 0 ? x : x * 0; });
  }
}

}  // namespace bolide
