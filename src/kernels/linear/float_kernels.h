// The float product's inner kernels, one set for each instruction set, and the form of packed float weights. No
// includes of the standard library here: instruction-set files include this.
//
// A float strip is 16 rows by all of K. f32: [K][16]. f16: [K][16]. bf16: [ceil(K / 2)][16][2], pairs along K, as
// vdpbf16ps and AMX read them; an odd K ends in zeros. Codes of 8 bits: [K][16] bytes. Strips start at multiples of 64
// bytes.
#pragma once

#include "kernels/linear/strip_format.h"

namespace bolide {

enum class FloatStorage : int { kF32, kF16, kBF16, kF8E4M3, kI8 };

struct FloatArgs {
  FloatStorage storage;
  int tile;
  int64_t k;  // even for kBF16
  int64_t strips;
  size_t strip_bytes;
  const uint8_t* weights;
  const float* panel;  // [k][tile] f32; for bf16_strips pairs of bf16 [k / 2][tile][2]
  StripTarget target;
};

// Rows [tokens, k] of f32 for a panel of `tile` tokens; those it lacks become zeros.
struct PanelRows {
  const float* x;
  int64_t x_stride;
  int64_t k;
  int tokens, tile;
  float* panel;
};

namespace avx512 {
void fill_panel(const PanelRows& rows);  // [k][tile]
void fill_pairs(const PanelRows& rows);  // pairs of bf16 [ceil(k / 2)][tile][2], to nearest even
// tile is one of 1, 2, 4, 6, 8, 12.
void float_strips(const FloatArgs& args);
// A strip of codes as f32 [k][16].
void widen_codes(FloatStorage storage, const uint8_t* strip, int64_t k, float* out);
}  // namespace avx512

namespace avx512bf16 {
// kBF16 storage only; tile as avx512.
void bf16_strips(const FloatArgs& args);
}  // namespace avx512bf16

// bf16 strips times 16-token tiles of bf16 rows, which are padded with zeros to 32 along K and to 16 tokens.
struct AmxBf16Args {
  int64_t k;  // even
  int64_t strips;
  size_t strip_bytes;
  const uint8_t* weights;
  const uint8_t* panel;
  int64_t row_bytes;  // of the panel
  int64_t row_tiles;
  StripTarget target;  // tokens: of all tiles
};

namespace amx {
void bf16_strips(const AmxBf16Args& args);
}  // namespace amx

namespace avx2 {
void fill_panel(const PanelRows& rows);  // [k][tile]
// tile is one of 1, 2, 4, 6.
void float_strips(const FloatArgs& args);
// A strip of codes as f32 [k][16].
void widen_codes(FloatStorage storage, const uint8_t* strip, int64_t k, float* out);
}  // namespace avx2

}  // namespace bolide
