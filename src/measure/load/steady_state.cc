#include "measure/load/steady_state.h"

#include <cmath>
#include <vector>

namespace bolide::load {
namespace {

// The truncation of at most `most` means that makes the standard error of the rest's mean smallest.
size_t best_truncation(std::span<const double> means, size_t most) {
  // From the end: sums of what is left once d means are gone. About the last, so that little is cancelled.
  const double origin = means.back();
  double sum = 0, squares = 0, best = 0;
  size_t best_at = 0;
  bool found = false;
  for (size_t d = means.size(); d-- > 0;) {
    const double x = means[d] - origin;
    sum += x;
    squares += x * x;
    if (d > most) continue;
    const auto left = static_cast<double>(means.size() - d);
    const double error = (squares - sum * sum / left) / (left * left);
    // Of equals the one that keeps most: a constant series has no warm-up.
    if (found && error > best) continue;
    best = error;
    best_at = d;
    found = true;
  }
  return best_at;
}

struct Level {
  double mean = 0, error = 0;  // error: of the mean
};
Level level_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (n * (n - 1)))};
}

// The last quarter is not what the third was.
bool drifts(std::span<const double> means) {
  constexpr double kErrors = 3, kShare = 0.02;
  const size_t quarter = means.size() / 4;
  const Level third = level_of(means.subspan(means.size() - 2 * quarter, quarter));
  const Level last = level_of(means.subspan(means.size() - quarter));
  const double difference = std::abs(last.mean - third.mean);
  return difference > kErrors * std::hypot(third.error, last.error) && difference > kShare * std::abs(third.mean);
}

}  // namespace

Truncation mser5(std::span<const double> series) {
  constexpr size_t kBatch = 5;
  Truncation result;
  if (series.size() < kSteadyObservationsMin) return result;
  result.judged = true;
  const size_t batches = series.size() / kBatch;
  std::vector<double> means(batches);
  for (size_t b = 0; b < batches; ++b) {
    for (size_t i = 0; i < kBatch; ++i) means[b] += series[b * kBatch + i];
    means[b] /= kBatch;
  }
  const size_t best = best_truncation(means, 3 * batches / 4);
  result.steady = 2 * best <= batches;
  size_t kept = best;
  if (!result.steady && !drifts(means)) {
    result.steady = true;
    kept = best_truncation(means, batches / 2);
  }
  if (result.steady) result.observations = kept * kBatch;
  return result;
}

}  // namespace bolide::load
