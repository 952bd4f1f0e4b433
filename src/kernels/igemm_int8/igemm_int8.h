// Products of 8-bit integers for convolutions and matrices: each row of the result reads, for each tap of its window,
// a run of bytes that a pointer names (an indirect product); a matrix has one tap. Sums are exact i32 (modulo 2^32).
//
// Weights lie in panels of up to 64 columns: [N / 64][K / 4][up to 64 columns, in full 16s][4], which is the operand of
// vpdpbusd; for AMX half a panel, [up to 2][K / 4][up to 32 columns][4], is read from its beginning to its end. K is
// the taps' bytes one after the other, padded with zeros to the engine's `depth`. No includes of the standard library
// here: instruction-set files include this.
#pragma once

#include <cstdint>

namespace bolide {

inline constexpr int kInt8PanelColumns = 64;

// What is done to a block's sums, column by column. Arrays are padded to full panels.
//   v = (sum + offsets[n] - row_sums[m] * column_zeros[n]) * scales[n]
struct Int8Finish {
  enum Kind : uint8_t {
    kSums,   // out i32 = sum + offset...
    kF32,    // out f32 = clamp(v + bias[n], low, high)
    kCodes,  // out byte = clamp(round half to even(v), low, high) + zero
    kAdded,  // that code less its zero, c, is a term of a sum:
             // out byte = clamp(round half to even(c * ratio + (residual * residual_ratio + rest)), low2, high2),
             // in fused multiply-adds
  };
  Kind kind = kCodes;
  bool residual_signed = false;
  bool is_signed = false;  // the codes that come out are of i8
  bool bounded = true;     // the lower bound of what comes out is above the type's least code
  bool capped = true;      // the upper bound is below the type's greatest code, or what is rounded may reach 2^31
  const int32_t* offsets = nullptr;
  const float* scales = nullptr;          // not of kSums
  const float* bias = nullptr;            // of kF32; null: none
  const int32_t* row_sums = nullptr;      // [rows]; null: no such term
  const int32_t* column_zeros = nullptr;  // with row_sums
  float low = 0, high = 0;
  int32_t zero = 0;
  const uint8_t* residual = nullptr;  // [rows][residual_stride], at the panel's first column
  int64_t residual_stride = 0;
  float ratio = 0, residual_ratio = 0, rest = 0;
  float low2 = 0, high2 = 0;
  void* out = nullptr;     // [rows][out_stride] elements, at the panel's first column
  int64_t out_stride = 0;  // elements
};

// A block of rows by one panel.
struct Int8BlockArgs {
  const uint8_t* const* pixels = nullptr;  // [taps][pixel_stride]: where row m's bytes of a tap begin
  int64_t pixel_stride = 0;
  int64_t rows = 0, taps = 0;
  int64_t quads = 0;  // of 4 bytes a tap
  bool flip = false;  // bytes are signed: 128 is added to each (offsets tell)
  const int8_t* weights = nullptr;
  int strips = 0;              // of 16 columns in the panel, 1 to 4
  int64_t columns = 0;         // that are stored; at most 16 * strips
  uint8_t* scratch = nullptr;  // AMX: 96 bytes for each byte of K padded to a multiple of 64
  bool scratch_ready = false;  // the last call with this scratch was of the same rows
  Int8Finish finish;           // of row 0 and the panel's first column
};

// Rows of an image whose bytes lie evenly, so that tiles are read where they are: position p, in line p / period at
// x = p % period, reads tap t at base + line * line_stride + x * row_stride + taps[t]. Of each line the first `valid`
// positions are results, one row after the other. Either tiles of 16 positions never leave their line (period is a
// multiple of 16, and what they read at its end is there to be read), or lines follow each other evenly (line_stride is
// period * row_stride) and nothing is read for positions beyond `positions`, which is at least 16.
struct Int8LinesArgs {
  const uint8_t* base = nullptr;
  int64_t row_stride = 0, line_stride = 0;
  const int64_t* taps = nullptr;
  int64_t tap_count = 0, tap_bytes = 0;  // bytes: a multiple of 64
  bool is_signed = false;                // of the bytes, to which nothing is added
  int64_t period = 0, valid = 0, positions = 0;
  int64_t first = 0, end = 0;  // positions to do; multiples of 32, or the end
  const int8_t* weights = nullptr;
  int64_t panels = 0, depth = 0;  // whose weights follow each other, of so many bytes of K
  int64_t columns = 0;            // of all panels
  Int8Finish finish;              // of the image's first result and the first panel's first column
};

// Depthwise: row m, channel c is the sum over taps of pixels[tap][m][c] * weights[tap][c]; up to 64 channels a call, at
// the pointers plus `channel`. Weights: [taps / 4][4][4 lanes][4 channels][4 taps]: channel
// lane * 16 + j * 4 + i of register j.
struct Int8DepthwiseArgs {
  const uint8_t* const* pixels = nullptr;
  int64_t pixel_stride = 0;
  int64_t rows = 0, taps = 0;
  int64_t channel = 0;
  bool flip = false;
  const int8_t* weights = nullptr;  // of this 64 channels
  int64_t columns = 0;              // at most 64
  Int8Finish finish;
};

// The f32 tensor as codes: clamp(round half to even(x / scale), low, high) + zero, as bytes.
struct Int8RoundArgs {
  const float* x = nullptr;
  int64_t count = 0;
  float scale = 0;
  float low = 0, high = 0;
  int32_t zero = 0;
  uint8_t* out = nullptr;
};
// out = clamp(round half to even(a * ratio_a + (b * ratio_b + rest)), low, high), in fused multiply-adds
struct Int8AddArgs {
  const uint8_t *a = nullptr, *b = nullptr;
  bool a_signed = false, b_signed = false;
  int64_t count = 0;
  float ratio_a = 0, ratio_b = 0, rest = 0, low = 0, high = 0;
  uint8_t* out = nullptr;
};

namespace vnni {
void int8_block(const Int8BlockArgs& args);
void int8_depthwise(const Int8DepthwiseArgs& args);
void int8_round(const Int8RoundArgs& args);
void int8_range(const float* x, int64_t count, float* least, float* most);
void int8_add(const Int8AddArgs& args);
// out = (x - zero) * scale
void int8_open(const uint8_t* x, int64_t count, bool is_signed, int32_t zero, float scale, float* out);
void int8_look_up(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* out);
}  // namespace vnni
namespace avx2 {
void int8_block(const Int8BlockArgs& args);
void int8_depthwise(const Int8DepthwiseArgs& args);
void int8_round(const Int8RoundArgs& args);
void int8_range(const float* x, int64_t count, float* least, float* most);
void int8_add(const Int8AddArgs& args);
// out = (x - zero) * scale
void int8_open(const uint8_t* x, int64_t count, bool is_signed, int32_t zero, float scale, float* out);
void int8_look_up(const uint8_t* x, int64_t count, const uint8_t* table, uint8_t* out);
}  // namespace avx2
namespace amx {
void int8_block(const Int8BlockArgs& args);
void int8_lines(const Int8LinesArgs& args);
}  // namespace amx

}  // namespace bolide
