#include "measure/load/percentiles.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace bolide::load {
namespace {

double quantile_of_sorted(std::span<const double> sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Probabilities of the number of `n` samples that lie below the quantile q, for counts from `first` on: all that
// matter.
struct Binomial {
  int64_t first = 0;
  std::vector<double> probability;
};
Binomial binomial(int64_t n, double q) {
  const double nn = static_cast<double>(n), spread = std::sqrt(nn * q * (1 - q));
  Binomial result;
  result.first = std::max<int64_t>(0, static_cast<int64_t>(nn * q - 10 * spread) - 10);
  const int64_t last = std::min(n, static_cast<int64_t>(nn * q + 10 * spread) + 10);
  for (int64_t k = result.first; k <= last; ++k) {
    const auto kk = static_cast<double>(k);
    result.probability.push_back(std::exp(std::lgamma(nn + 1) - std::lgamma(kk + 1) - std::lgamma(nn - kk + 1) +
                                          kk * std::log(q) + (nn - kk) * std::log1p(-q)));
  }
  return result;
}

}  // namespace

Interval quantile_interval(std::span<const double> sorted, double q, int64_t effective, double confidence) {
  BOLIDE_CHECK(!sorted.empty(), "an interval of no values");
  BOLIDE_CHECK(q > 0 && q < 1, "quantile {}", q);
  const int64_t n = std::clamp<int64_t>(effective, 1, static_cast<int64_t>(sorted.size()));
  const double tail = (1 - confidence) / 2;
  const Binomial counts = binomial(n, q);
  // The count below the quantile is at least `low` and below `high`, each with probability 1 - tail: the quantile lies
  // between the low-th and the high-th sample, counted from 1.
  double missed_low = 0, missed_high = 0;
  size_t low = 0;
  while (low < counts.probability.size() && missed_low + counts.probability[low] <= tail)
    missed_low += counts.probability[low++];
  size_t high = counts.probability.size();
  while (high > low && missed_high + counts.probability[high - 1] <= tail) missed_high += counts.probability[--high];
  int64_t low_rank = counts.first + static_cast<int64_t>(low);
  int64_t high_rank = counts.first + static_cast<int64_t>(high);
  if (low_rank < 1) {  // the quantile may lie below the smallest sample
    missed_low += std::pow(1 - q, static_cast<double>(n));
    low_rank = 1;
  }
  if (high_rank > n) {
    missed_high += std::pow(q, static_cast<double>(n));
    high_rank = n;
  }
  const auto at = [&](int64_t rank) {
    if (n == 1) return rank <= 1 && q < 0.5 ? sorted.front() : sorted.back();
    return quantile_of_sorted(sorted, static_cast<double>(rank - 1) / static_cast<double>(n - 1));
  };
  Interval interval{at(low_rank), at(high_rank), std::clamp(1 - missed_low - missed_high, 0.0, 1.0)};
  if (n == 1) interval = {sorted.front(), sorted.back(), 0};
  return interval;
}

int64_t effective_samples(std::span<const double> values, double bound, double q) {
  const size_t n = values.size();
  const size_t batches = std::min<size_t>(30, n / 10);
  if (batches < 5) return static_cast<int64_t>(n);
  const size_t size = n / batches;
  double sum = 0, squares = 0;
  for (size_t b = 0; b < batches; ++b) {
    size_t below = 0;
    for (size_t i = 0; i < size; ++i) below += values[b * size + i] <= bound ? 1 : 0;
    const double mean = static_cast<double>(below) / static_cast<double>(size);
    sum += mean;
    squares += mean * mean;
  }
  const auto count = static_cast<double>(batches);
  const double variance = (squares - sum * sum / count) / (count - 1);
  const double factor = std::max(1.0, variance * static_cast<double>(size) / (q * (1 - q)));
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(n) / factor));
}

Distribution distribution_of(std::span<const double> values, double confidence) {
  Distribution result;
  if (values.empty()) return result;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  result.samples = static_cast<int64_t>(sorted.size());
  result.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  result.min = sorted.front();
  result.max = sorted.back();
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    Percentile& percentile = result.percentiles[i];
    percentile.q = kPercentiles[i];
    percentile.value = quantile_of_sorted(sorted, percentile.q);
    percentile.effective = effective_samples(values, percentile.value, percentile.q);
    percentile.interval = quantile_interval(sorted, percentile.q, percentile.effective, confidence);
  }
  return result;
}

Interval share_interval(int64_t hits, int64_t n) {
  BOLIDE_CHECK(n > 0 && hits >= 0 && hits <= n, "{} of {}", hits, n);
  constexpr double kZ = 1.959964;  // of 95 %
  const double nn = static_cast<double>(n), share = static_cast<double>(hits) / nn;
  const double centre = share + kZ * kZ / (2 * nn);
  const double half = kZ * std::sqrt(share * (1 - share) / nn + kZ * kZ / (4 * nn * nn));
  const double scale = 1 + kZ * kZ / nn;
  return {std::max(0.0, (centre - half) / scale), std::min(1.0, (centre + half) / scale), 0.95};
}

}  // namespace bolide::load
