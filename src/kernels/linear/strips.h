// Packing of block-quantised weights into strips (strip_format.h), and what kernels must know to walk them.
#pragma once

#include <algorithm>
#include <atomic>
#include <string_view>

#include "kernels/kernel.h"
#include "kernels/linear/strip_format.h"

namespace bolide {

struct StripScheme {
  const QuantScheme* quant;
  StripKind kind;
  int zero;  // code that stands for 0, in schemes without minima
};

// nullptr if strips do not hold this scheme.
const StripScheme* strip_scheme(const QuantScheme* quant);

StripShape strip_shape(const StripScheme& scheme, int64_t k);

// Strips of one matrix of n rows; a weight [X, N, K] is X matrices, each with strips of its own.
constexpr int64_t strips_of(int64_t n) { return (n + kStripRows - 1) / kStripRows; }

// A weight as matrices of n rows.
struct Extent {
  int64_t matrices = 1, n = 1, k = 1;
  explicit Extent(const ValueType& weight);
  int64_t strips() const { return matrices * strips_of(n); }
};

// body(strip, row in it, row of the weight) for every row, strips in parallel.
template <class Body>
void for_strip_rows(const Extent& extent, Workers& workers, Body body) {
  workers.run(extent.strips(), [&](int64_t strip, int) {
    const int64_t in_matrix = strip % strips_of(extent.n) * kStripRows;
    const int64_t first = strip / strips_of(extent.n) * extent.n + in_matrix;
    const int64_t rows = std::min<int64_t>(kStripRows, extent.n - in_matrix);
    for (int64_t r = 0; r < rows; ++r) body(strip, static_cast<int>(r), first + r);
  });
}

// The lowest row that several threads found unusable.
class FirstBadRow {
 public:
  void report(int64_t row) {
    int64_t seen = row_.load();
    while (row < seen && !row_.compare_exchange_weak(seen, row)) {
    }
  }
  // kInvalid: "row 13 has a NaN or infinite `what`".
  Result<> result(std::string_view what) const;

 private:
  std::atomic<int64_t> row_{INT64_MAX};
};

// "strips": any block scheme; unpack restores the blocks bit for bit.
extern const Packing kStripPacking;

}  // namespace bolide
