#include "measure/load/steady_state.h"

#include <vector>

namespace bolide::load {

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
  // From the end: sums of what is left once d batches are gone. About the last mean, so that little is cancelled.
  const double origin = means.back();
  double sum = 0, squares = 0, best = 0;
  size_t best_at = 0;
  bool found = false;
  for (size_t d = batches; d-- > 0;) {
    const double x = means[d] - origin;
    sum += x;
    squares += x * x;
    if (4 * d > 3 * batches) continue;
    const auto left = static_cast<double>(batches - d);
    const double error = (squares - sum * sum / left) / (left * left);
    // Of equals the one that keeps most: a constant series has no warm-up.
    if (!found || error <= best) {
      best = error;
      best_at = d;
      found = true;
    }
  }
  result.steady = 2 * best_at <= batches;
  if (result.steady) result.observations = best_at * kBatch;
  return result;
}

}  // namespace bolide::load
