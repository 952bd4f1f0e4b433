#include "measure/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace bolide {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

double quantile_of_sorted(std::span<const double> values, double q) {
  BOLIDE_CHECK(!values.empty(), "a quantile of no values");
  BOLIDE_CHECK(q >= 0 && q <= 1, "quantile {}", q);
  const double position = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace

Stat summarise(std::span<const double> values) {
  if (values.empty()) return {};
  const std::vector<double> ordered = sorted(values);
  return {quantile_of_sorted(ordered, 0.5), ordered.front(), ordered.back(), static_cast<int64_t>(ordered.size())};
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

double quantile(std::span<const double> values, double q) { return quantile_of_sorted(sorted(values), q); }

std::vector<double> quantiles(std::span<const double> values, std::span<const double> qs) {
  const std::vector<double> ordered = sorted(values);
  std::vector<double> result;
  result.reserve(qs.size());
  for (const double q : qs) result.push_back(quantile_of_sorted(ordered, q));
  return result;
}

double median_absolute_deviation(std::span<const double> values) {
  const double centre = median(values);
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value - centre));
  return median(deviations);
}

Interval median_interval(std::span<const double> values, double confidence) {
  BOLIDE_CHECK(!values.empty(), "an interval of no values");
  const std::vector<double> ordered = sorted(values);
  const size_t n = ordered.size();
  // The number of samples below the median is binomial(n, 1/2). [x(k), x(n-1-k)], counted from 0, misses the median
  // with probability 2 P(count <= k); take the largest k that keeps this within 1 - confidence.
  const auto probability = [n](size_t count) {  // in logarithms: n may be large
    const double nn = static_cast<double>(n), c = static_cast<double>(count);
    return std::exp(std::lgamma(nn + 1) - std::lgamma(c + 1) - std::lgamma(nn - c + 1) - nn * std::log(2.0));
  };
  size_t k = 0;
  double miss = std::min(1.0, 2 * probability(0));
  while (2 * (k + 1) < n - 1) {
    const double next = miss + 2 * probability(k + 1);
    if (next > 1 - confidence) break;
    miss = next;
    ++k;
  }
  return {ordered[k], ordered[n - 1 - k], 1 - miss};
}

PairedRatio paired_ratio(std::span<const double> a, std::span<const double> b, double confidence) {
  BOLIDE_CHECK(a.size() == b.size() && !a.empty(), "{} values against {}", a.size(), b.size());
  std::vector<double> ratios;
  ratios.reserve(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    BOLIDE_CHECK(b[i] != 0, "ratio to zero");
    ratios.push_back(a[i] / b[i]);
  }
  return {median(ratios), median_interval(ratios, confidence), static_cast<int64_t>(ratios.size())};
}

}  // namespace bolide
