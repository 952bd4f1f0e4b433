// Weights of the int8 products as their kernels read them (igemm_int8.h), the kernels that a device has, and the loop
// over rows, panels and threads around them.
//
// Thread rules: immutable once made.
#pragma once

#include <string_view>

#include "base/function_ref.h"
#include "base/workers.h"
#include "device/device.h"
#include "kernels/igemm_int8/igemm_int8.h"
#include "tensor/value.h"

namespace bolide {

struct Int8Engine {
  std::string_view isa;
  void (*block)(const Int8BlockArgs&);
  void (*lines)(const Int8LinesArgs&);  // null: it has none
  void (*depthwise)(const Int8DepthwiseArgs&);
  void (*round)(const Int8RoundArgs&);
  void (*range)(const float* x, int64_t count, float* least, float* most);
  void (*add)(const Int8AddArgs&);
  void (*open)(const uint8_t* x, int64_t count, bool is_signed, int32_t zero, float scale, float* out);
  void (*look_up)(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* out);
  int64_t depth;             // what K is padded to a multiple of
  int64_t columns;           // of a panel that lie side by side: 64, or 32 with all of K and then the others
  int64_t block_rows;        // a block is best of so many
  int64_t scratch_per_byte;  // of a thread, for each byte of padded K
};
// The fastest that the device may use; null: none.
const Int8Engine* int8_engine(const DeviceInfo& device);

inline int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// A matrix [n, k] of weights.
struct PackedInt8 {
  int64_t n = 0, k = 0, depth = 0;  // depth: k padded
  Tensor data;                      // i8: panels
  Tensor sums;                      // i32 [n padded to 64]: of each row

  size_t bytes() const { return data.bytes() + sums.bytes(); }
  int64_t panels() const { return (n + kInt8PanelColumns - 1) / kInt8PanelColumns; }
  int strips(int64_t panel) const {
    const int64_t left = n - panel * kInt8PanelColumns;
    return left >= kInt8PanelColumns ? 4 : static_cast<int>((left + 15) / 16);
  }
  const int8_t* panel(int64_t i) const { return data.as<int8_t>().data() + i * kInt8PanelColumns * depth; }
};
// Weight (i, j) is weights[i * row + j * column], exclusive-or `flip` (0x80 makes u8 less 128 of u8).
Result<PackedInt8> pack_int8(const Int8Engine& engine, int64_t n, int64_t k, const int8_t* weights, int64_t row,
                             int64_t column, uint8_t flip = 0, TensorPool& pool = heap_pool());
// As Int8DepthwiseArgs has them: weights [channels, taps]; `n` is channels, `k` taps, `depth` taps padded to 4.
Result<PackedInt8> pack_int8_depthwise(int64_t channels, int64_t taps, const int8_t* weights);

// Fills pixels[t * stride + i] for rows row0 + i, i < rows, of all taps.
using PointAt = FunctionRef<void(int64_t row0, int64_t rows, const uint8_t** pixels, int64_t stride)>;

// A product of `rows` rows by packed weights. `finish` is of row 0 and column 0; its pointers are advanced.
struct Int8Job {
  const Int8Engine* engine = nullptr;
  const PackedInt8* weights = nullptr;
  int64_t rows = 0, taps = 1, quads = 0;
  bool flip = false;
  Int8Finish finish;
  size_t scratch_bytes(int threads) const;
};
// scratch: of scratch_bytes(workers.threads()), 64-byte aligned.
void run_int8(const Int8Job& job, PointAt point, uint8_t* scratch, Workers& workers);
void run_int8_depthwise(const Int8Job& job, PointAt point, uint8_t* scratch, Workers& workers);

// A product whose rows lie as Int8LinesArgs has it, one image after the other. `depth` of the weights is that of the
// taps.
struct Int8LinesJob {
  const Int8Engine* engine = nullptr;
  const PackedInt8* weights = nullptr;
  Int8LinesArgs image;  // the first: base to positions
  int64_t images = 1, image_stride = 0;
  int64_t results = 0;  // of an image: rows of the output
  Int8Finish finish;
};
void run_int8_lines(const Int8LinesJob& job, Workers& workers);

// `finish` of rows from `row` and columns from `column` on.
Int8Finish advanced(const Int8Finish& finish, int64_t row, int64_t column);

}  // namespace bolide
