// Reference: sorts the whole vocabulary; weights in f64.
#include <cmath>
#include <vector>

#include "kernels/common/launch.h"
#include "kernels/sample/philox.h"
#include "kernels/sample/sample_parts.h"

namespace bolide::sample {
namespace {

struct Candidate {
  float score;
  int32_t id;
};

// The candidates that the row's filters keep; `sorted` is in order.
size_t kept(const SamplingRow& row, std::span<const Candidate> sorted, std::span<const double> weights) {
  size_t count = sorted.size();
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < count) {
    const float least = sorted[static_cast<size_t>(row.top_k) - 1].score;
    count = static_cast<size_t>(row.top_k);
    while (count < sorted.size() && sorted[count].score == least) ++count;
  }
  if (row.top_p < 1) {
    double total = 0, sum = 0;
    for (size_t i = 0; i < count; ++i) total += weights[i];
    size_t n = 0;
    do {
      sum += weights[n++];
    } while (n < count && sum < total * row.top_p);
    count = n;
  }
  if (row.min_p > 0)
    while (count > 1 && weights[count - 1] < row.min_p) --count;
  return count;
}

// -1: all scores are -infinity.
int32_t draw(const SamplingRow& row, std::span<const float> scores) {
  std::vector<Candidate> sorted(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) sorted[i] = {scores[i], static_cast<int32_t>(i)};
  std::sort(sorted.begin(), sorted.end(),
            [](Candidate a, Candidate b) { return a.score != b.score ? a.score > b.score : a.id < b.id; });
  if (!std::isfinite(sorted[0].score)) return -1;
  if (!(row.temperature > 0)) return sorted[0].id;
  std::vector<double> weights(scores.size());
  for (size_t i = 0; i < scores.size(); ++i)
    weights[i] = std::exp((double{sorted[i].score} - sorted[0].score) / row.temperature);
  const size_t count = kept(row, sorted, weights);
  double total = 0, sum = 0;
  for (size_t i = 0; i < count; ++i) total += weights[i];
  const double target = uniform(row.seed, row.request, row.position) * total;
  size_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += weights[i];
    if (weights[i] > 0) last = i;
    if (sum > target) return sorted[i].id;
  }
  return sorted[last].id;
}

}  // namespace

// (logits [R, V]) -> (next i32 [R], log-probability f32 [R]).
Result<> sample_ref(const Launch& launch, Stream&) {
  check_rows(launch);
  const TensorView& logits = launch.in[0];
  const auto vocabulary = static_cast<size_t>(logits.cols());
  std::vector<float> scores(vocabulary);
  std::vector<int32_t> counts(vocabulary);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const SamplingRow& row = launch.batch->sampling[static_cast<size_t>(r)];
    const float* raw = logits.row<float>(r);
    float largest = -INFINITY;
    for (size_t i = 0; i < vocabulary; ++i) {
      largest = std::isnan(raw[i]) || std::isnan(largest) ? NAN : std::max(largest, raw[i]);
      scores[i] = raw[i];
    }
    if (!std::isfinite(largest)) {
      launch.out[0].as<int32_t>()[r] = -1;
      launch.out[1].as<float>()[r] = NAN;
      continue;
    }
    double total = 0;
    for (size_t i = 0; i < vocabulary; ++i) total += std::exp(double{raw[i]} - largest);
    if (row.adjusts()) adjust(row, logits.cols(), scores.data(), counts.data());
    const int32_t id = draw(row, scores);
    launch.out[0].as<int32_t>()[r] = id;
    launch.out[1].as<float>()[r] = id < 0 ? NAN : static_cast<float>(double{raw[id]} - largest - std::log(total));
  }
  return {};
}

}  // namespace bolide::sample
