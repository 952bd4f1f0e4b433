#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace bolide {
namespace {

std::vector<double> count_to(int n) {  // 1..n, shuffled
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), 1.0);
  std::shuffle(values.begin(), values.end(), std::mt19937(std::random_device{}()));
  return values;
}

TEST(Statistics, KnownAnswers) {
  const std::vector<double> values = {7, 1, 3, 100};
  EXPECT_DOUBLE_EQ(median(values), 5);
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 100);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 2.5);  // numpy.quantile, default method
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 72.1);
  EXPECT_DOUBLE_EQ(median_absolute_deviation(values), 3);  // |2, 4, 2, 95|
  const Stat stat = summarise(values);
  EXPECT_DOUBLE_EQ(stat.median, 5);
  EXPECT_DOUBLE_EQ(stat.min, 1);
  EXPECT_DOUBLE_EQ(stat.max, 100);
  EXPECT_EQ(stat.samples, 4);
  EXPECT_EQ(summarise({}).samples, 0);
  EXPECT_EQ(quantiles(values, std::vector<double>{0, 0.5, 1}), (std::vector<double>{1, 5, 100}));
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4}), 4);
}

TEST(Statistics, IntervalRanksMatchTheBinomialDistribution) {
  // Ranks of the 95 % interval of a median, counted from 1, and 1 - 2 P(Binomial(n, 1/2) < low), worked out apart.
  struct Row {
    int n, low, high;
    double confidence;
  };
  for (const Row row : {Row{6, 1, 6, 0.96875}, Row{7, 1, 7, 0.984375}, Row{10, 2, 9, 0.978516},
                        Row{20, 6, 15, 0.958611}, Row{50, 18, 33, 0.967161}}) {
    const Interval interval = median_interval(count_to(row.n));
    EXPECT_EQ(interval.low, row.low) << row.n;
    EXPECT_EQ(interval.high, row.high) << row.n;
    EXPECT_NEAR(interval.confidence, row.confidence, 1e-5) << row.n;
  }
}

TEST(Statistics, TooFewSamplesSayWhatTheyCover) {
  const Interval five = median_interval(count_to(5));
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  EXPECT_DOUBLE_EQ(five.confidence, 0.9375);
  EXPECT_DOUBLE_EQ(median_interval(count_to(1)).confidence, 0);
  EXPECT_DOUBLE_EQ(median_interval(count_to(2)).confidence, 0.5);
}

TEST(Statistics, IntervalCoversTheTrueMedianAsOftenAsItSays) {
  std::mt19937 random(std::random_device{}());
  std::lognormal_distribution<double> skewed(0.0, 1.5);  // true median 1
  constexpr int kTrials = 4000;
  int covered = 0;
  double promised = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(25);
    for (double& value : values) value = skewed(random);
    const Interval interval = median_interval(values);
    covered += interval.low <= 1 && 1 <= interval.high ? 1 : 0;
    promised = interval.confidence;
  }
  // Standard error of the observed share: 0.0033; five of them.
  EXPECT_NEAR(static_cast<double>(covered) / kTrials, promised, 0.0165);
}

TEST(Statistics, PairsCancelDrift) {
  // B drifts by a factor of 10 over the run and A always takes 1.2 times as long: the ratio is exact all the same.
  std::vector<double> a, b;
  for (int i = 0; i < 50; ++i) {
    b.push_back(1.0 + 0.18 * i);
    a.push_back(1.2 * b.back());
  }
  const PairedRatio ratio = paired_ratio(a, b);
  EXPECT_NEAR(ratio.median, 1.2, 1e-12);
  EXPECT_NEAR(ratio.interval.low, 1.2, 1e-12);
  EXPECT_NEAR(ratio.interval.high, 1.2, 1e-12);
  EXPECT_EQ(ratio.pairs, 50);
}

}  // namespace
}  // namespace bolide
