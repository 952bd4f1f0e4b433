#include "zoo/weight_fill.h"

#include <vector>

#include "synth/random_fill.h"

namespace bolide {
namespace {

constexpr uint64_t kPerWord = 4;
constexpr double kMeanSpread = 0.05, kVarianceSpread = 0.05;

std::span<float> floats_of(MutableBytes bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// A draw of the standard normal distribution.
double draw(uint64_t key, uint64_t i) { return static_cast<double>(normal_quantiles()[random_word(key, i) >> 52]); }

struct Sums {
  double sum = 0, squares = 0;
};

// Of the row's elements before they are scaled by the deviation.
Sums sums_of(const RowStatistics& rows, uint64_t row, std::vector<float>& scratch) {
  const auto size = static_cast<uint64_t>(rows.row);
  const uint64_t begin = row * size, first = begin / kPerWord * kPerWord;
  scratch.resize(begin + size - first);
  fill_from_table(rows.weight_key, first, std::span(scratch), normal_quantiles().data());
  Sums sums;
  for (size_t i = begin - first; i < scratch.size(); ++i) {
    const double value = scratch[i];
    sums.sum += value, sums.squares += value * value;
  }
  return sums;
}

}  // namespace

// The product of two floats is exact in a double: the sum is rounded once, fused or not.
void fill_normal(uint64_t key, uint64_t offset, double centre, double deviation, MutableBytes out) {
  std::array<float, kQuantiles> table;
  const double scale = static_cast<float>(deviation);
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<float>(centre + scale * static_cast<double>(normal_quantiles()[i]));
  fill_from_table(key, offset / sizeof(float), floats_of(out), table.data());
}

void fill_means(const RowStatistics& rows, uint64_t key, uint64_t offset, MutableBytes out) {
  std::vector<float> scratch;
  uint64_t row = offset / sizeof(float);
  for (float& value : floats_of(out)) {
    const double mean = rows.mean * rows.deviation * sums_of(rows, row, scratch).sum;
    value = static_cast<float>(mean + kMeanSpread * draw(key, row++));
  }
}

void fill_variances(const RowStatistics& rows, uint64_t key, uint64_t offset, MutableBytes out) {
  std::vector<float> scratch;
  uint64_t row = offset / sizeof(float);
  for (float& value : floats_of(out)) {
    const double variance = rows.variance * rows.deviation * rows.deviation * sums_of(rows, row, scratch).squares;
    value = static_cast<float>(variance * (1 + kVarianceSpread * draw(key, row++)));
  }
}

}  // namespace bolide
