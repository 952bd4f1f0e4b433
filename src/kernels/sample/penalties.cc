#include <cmath>
#include <limits>

#include "kernels/sample/sample_parts.h"

namespace bolide::sample {

namespace {

// Penalties are the client's and may be extreme.
float bounded(float score) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (std::isnan(score)) return -kMost;
  return std::isinf(score) ? std::copysign(kMost, score) : score;
}

void add_biases(const SamplingRow& row, int64_t vocabulary, float* scores) {
  for (int32_t i = 0; i < row.bias_count; ++i)
    if (const TokenBias b = row.biases[i]; b.id >= 0 && b.id < vocabulary) scores[b.id] += b.bias;
}

}  // namespace

void adjust(const SamplingRow& row, int64_t vocabulary, float* scores, int32_t* counts) {
  add_biases(row, vocabulary, scores);
  const auto for_ids = [&](int32_t begin, auto&& body) {
    for (int32_t i = begin; i < row.history_count; ++i)
      if (const int32_t id = row.history[i]; id >= 0 && id < vocabulary) body(id);
  };
  if (row.repetition_penalty != 1) {
    for_ids(0, [&](int32_t id) { counts[id] = 0; });
    for_ids(0, [&](int32_t id) {
      if (counts[id]++ != 0) return;
      if (std::isinf(scores[id])) return;  // masked
      scores[id] = bounded(scores[id] < 0 ? scores[id] * row.repetition_penalty : scores[id] / row.repetition_penalty);
    });
  }
  if (row.presence_penalty != 0 || row.frequency_penalty != 0) {
    for_ids(row.prompt_count, [&](int32_t id) { counts[id] = 0; });
    for_ids(row.prompt_count, [&](int32_t id) { ++counts[id]; });
    for_ids(row.prompt_count, [&](int32_t id) {
      if (counts[id] == 0 || std::isinf(scores[id])) return;
      scores[id] =
          bounded(scores[id] - (row.presence_penalty + row.frequency_penalty * static_cast<float>(counts[id])));
      counts[id] = 0;
    });
  }
}

void check_rows(const Launch& launch) {
  BOLIDE_CHECK(launch.batch != nullptr, "sampling without a batch");
  const auto rows = static_cast<size_t>(launch.in[0].rows());
  BOLIDE_CHECK(launch.batch->sampling.size() >= rows, "{} rows of logits, {} of sampling parameters", rows,
               launch.batch->sampling.size());
}

}  // namespace bolide::sample
