// What zoo models' weights are filled with. Element i of a tensor depends on its key and i alone; the arithmetic is
// exact but for one rounding, so that every compiler and processor gives the same bytes.
//
// Thread rules: plain functions. `offset` is in bytes and a multiple of 16.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"

namespace bolide {

void fill_normal(uint64_t key, uint64_t offset, double centre, double deviation, MutableBytes out);

// What a convolution makes, by the sums of its rows, of input whose elements have this mean and variance.
struct RowStatistics {
  uint64_t weight_key = 0;
  int64_t row = 0;  // elements
  double deviation = 0;
  double mean = 0, variance = 1;
};
// f32 [rows]. No two training runs agree: both are off by some per cent.
void fill_means(const RowStatistics& rows, uint64_t key, uint64_t offset, MutableBytes out);
void fill_variances(const RowStatistics& rows, uint64_t key, uint64_t offset, MutableBytes out);

template <class T>
std::string little_endian(std::span<const T> values) {
  return std::string(as_text(std::as_bytes(values)));
}

}  // namespace bolide
