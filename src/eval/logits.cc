#include "eval/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bolide {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log of the sum of exp(logits).
double log_sum(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float value : logits) sum += std::exp(double{value} - top);
  return top + std::log(sum);
}

double finite_or_infinity(double value) { return std::isfinite(value) ? value : kInfinity; }

}  // namespace

double rel_l2(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return kInfinity;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = double{got[i]} - double{want[i]};
    difference += d * d;
    norm += double{want[i]} * double{want[i]};
  }
  if (norm == 0) return difference == 0 ? 0 : kInfinity;
  return finite_or_infinity(std::sqrt(difference / norm));
}

double max_abs(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return kInfinity;
  double largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(double{got[i]} - double{want[i]});
    if (!(d <= largest)) largest = finite_or_infinity(d);
  }
  return largest;
}

double kl_divergence(std::span<const float> want, std::span<const float> got) {
  if (got.size() != want.size() || want.empty()) return kInfinity;
  const double p_sum = log_sum(want), q_sum = log_sum(got);
  double kl = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double p = double{want[i]} - p_sum, q = double{got[i]} - q_sum;
    if (p > -kInfinity) kl += std::exp(p) * (p - q);
  }
  return finite_or_infinity(std::max(kl, 0.));
}

double log_probability(std::span<const float> logits, int32_t id) {
  return double{logits[static_cast<size_t>(id)]} - log_sum(logits);
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace bolide
