#include "kernels/moe/routing.h"

#include <algorithm>
#include <cmath>

namespace bolide {

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

}  // namespace bolide
