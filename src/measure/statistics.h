// Statistics of repeated measurements: robust ones, since other programs disturb a few samples of any run.
//
// Pure functions; inputs need not be sorted and must not contain NaN.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bolide {

struct Stat {
  double median = 0, min = 0, max = 0;
  int64_t samples = 0;
};

// All zeros for no values.
Stat summarise(std::span<const double> values);

double median(std::span<const double> values);  // of at least one value
// Linear interpolation between order statistics (Hyndman & Fan 1996, type 7); q in [0, 1], at least one value.
double quantile(std::span<const double> values, double q);
std::vector<double> quantiles(std::span<const double> values, std::span<const double> qs);  // sorts once
// Median of the absolute deviations from the median, unscaled.
double median_absolute_deviation(std::span<const double> values);

// An interval and the probability that it covers the true median.
struct Interval {
  double low = 0, high = 0;
  double confidence = 0;
};

// From order statistics and the binomial distribution: exact for independent samples of any continuous distribution.
// With too few samples for `confidence` (5 or fewer at 0.95) it is [min, max] and says what that covers.
Interval median_interval(std::span<const double> values, double confidence = 0.95);

// What A costs relative to B, from runs that alternate A, B, A, B: pairs cancel slow drifts of the machine.
struct PairedRatio {
  double median = 0;  // of a[i] / b[i]
  Interval interval;  // of that median
  int64_t pairs = 0;
};

// `a` and `b` have the same size, at least one pair, and b has no zero.
PairedRatio paired_ratio(std::span<const double> a, std::span<const double> b, double confidence = 0.95);

}  // namespace bolide
