// Percentiles with intervals, of samples that are in the order of time and may depend on their neighbours.
//
// Thread rules: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "measure/statistics.h"

namespace bolide::load {

struct Percentile {
  double q = 0;
  double value = 0;
  // What covers the true quantile; its confidence is below the one asked for where the samples are too few, and `high`
  // is then the largest sample.
  Interval interval;
  int64_t effective = 0;  // independent samples that would say as much
};

constexpr std::array<double, 4> kPercentiles = {0.5, 0.9, 0.95, 0.99};

struct Distribution {
  int64_t samples = 0;
  double mean = 0, min = 0, max = 0;
  std::array<Percentile, kPercentiles.size()> percentiles;  // all zero without samples
};
Distribution distribution_of(std::span<const double> values, double confidence = 0.95);

// Samples that are independent would have the variance of the indicator "at most `bound`" that the means of up to 30
// batches have: n over the factor by which they vary more. At most n.
int64_t effective_samples(std::span<const double> values, double bound, double q);

// From order statistics and the binomial distribution of `effective` samples. `sorted` has at least one value.
Interval quantile_interval(std::span<const double> sorted, double q, int64_t effective, double confidence = 0.95);

// Wilson's interval of a share, hits of n > 0.
Interval share_interval(int64_t hits, int64_t n);

}  // namespace bolide::load
