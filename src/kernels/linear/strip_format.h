// Strips: the packed form of block-quantised weights, 16 rows by all of K. Plain data only: instruction-set files
// include this header and nothing of the standard library but integers.
//
// A strip holds, each part at a multiple of 64 bytes:
//   codes   [K / 32] groups. 8-bit codes: 8 x 64 bytes; 64 bytes hold 4 consecutive k of 16 rows, row-major, so that
//           one 32-bit lane is one row. 4-bit codes: 4 x 64 bytes; byte (row r, b) of part j has k = 4 j + b in the low
//           nibble and k = 16 + 4 j + b in the high one. 6-bit codes: their low 4 bits so, then 2 x 64 bytes of their
//           high 2 bits; byte (r, b) of half h has those of k = 16 h + 4 j + b at bit 2 j.
//   scales  [K / group] x 16 rows: f16, f32, or 8-bit multiples of the block's f16
//   minima  the same for schemes that have them; for those with zero points a byte, the zero point, in its place
//   super   [K / 256] x (16 f16 scales of the block, 16 f16 minima if any)
// A strip's bytes are one stream from front to back, and 64 bytes of codes are one register or one AMX tile row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bolide {

inline constexpr int kStripRows = 16;

enum class StripScale : uint8_t {
  kHalf,      // scale and minimum are f16
  kUnsigned,  // scale = d * u8, minimum = -dmin * u8
  kSigned,    // scale = d * i8
  // One scale for 2^StripShape::shift groups of 32, or one for each part:
  kHalfZero,   // scale is f16, minimum = -scale * u8
  kFloat,      // scale is f32
  kFloatZero,  // scale is f32, minimum = -scale * u8
};

// value = scale * (code - zero), or scale * code + minimum.
struct StripFormat {
  int code_bits;  // 4, 6 or 8
  bool table;     // a 4-bit code stands for an 8-bit value of the iq4 table
  int parts;      // scales in a group of 32 along K: 1 or 2
  StripScale scale;
  bool minimum;
};

// Numbers for StripArgs::kind; one for each set of traits that a block scheme needs.
enum StripKind : int {
  kStrip4Half,          // q4_0
  kStrip4HalfMin,       // q4_1
  kStripTableHalf,      // iq4_nl
  kStrip6Half,          // q5_0
  kStrip6HalfMin,       // q5_1
  kStrip8Half,          // q8_0
  kStrip4Super,         // q4_k
  kStrip6Super,         // q5_k
  kStripTableSuper,     // iq4_xs
  kStrip6SuperBy16,     // q6_k
  kStrip4SuperMinBy16,  // q2_k
  kStrip4SuperBy16,     // q3_k
  kStrip4HalfZero,      // w4_g32, w4_g64, w4_g128
  kStrip4Float,         // the others: ONNX's blocks of integers (packed_blocks.h)
  kStrip4FloatZero,
  kStrip4FloatZeroBy16,
  kStrip8FloatZero,
  kStripKinds
};

constexpr StripFormat strip_format(int kind) {
  switch (kind) {
    case kStrip4Half: return {4, false, 1, StripScale::kHalf, false};
    case kStrip4HalfMin: return {4, false, 1, StripScale::kHalf, true};
    case kStripTableHalf: return {4, true, 1, StripScale::kHalf, false};
    case kStrip6Half: return {6, false, 1, StripScale::kHalf, false};
    case kStrip6HalfMin: return {6, false, 1, StripScale::kHalf, true};
    case kStrip8Half: return {8, false, 1, StripScale::kHalf, false};
    case kStrip4Super: return {4, false, 1, StripScale::kUnsigned, true};
    case kStrip6Super: return {6, false, 1, StripScale::kUnsigned, true};
    case kStripTableSuper: return {4, true, 1, StripScale::kSigned, false};
    case kStrip6SuperBy16: return {6, false, 2, StripScale::kSigned, false};
    case kStrip4SuperMinBy16: return {4, false, 2, StripScale::kUnsigned, true};
    case kStrip4HalfZero: return {4, false, 1, StripScale::kHalfZero, true};
    case kStrip4Float: return {4, false, 1, StripScale::kFloat, false};
    case kStrip4FloatZero: return {4, false, 1, StripScale::kFloatZero, true};
    case kStrip4FloatZeroBy16: return {4, false, 2, StripScale::kFloatZero, true};
    case kStrip8FloatZero: return {8, false, 1, StripScale::kFloatZero, true};
    default: return {4, false, 2, StripScale::kSigned, false};
  }
}
constexpr bool strip_scale_half(StripFormat f) {
  return f.scale == StripScale::kHalf || f.scale == StripScale::kHalfZero;
}
constexpr bool strip_scale_float(StripFormat f) {
  return f.scale == StripScale::kFloat || f.scale == StripScale::kFloatZero;
}
constexpr bool strip_has_zeros(StripFormat f) {
  return f.scale == StripScale::kHalfZero || f.scale == StripScale::kFloatZero;
}
// Bytes of the scales, and of the minima or zero points, of 16 rows by one part of a group or, with a shift, of
// several.
constexpr int strip_scale_bytes(StripFormat f) { return strip_scale_float(f) ? 64 : strip_scale_half(f) ? 32 : 16; }
constexpr int strip_minimum_bytes(StripFormat f) {
  return !f.minimum ? 0 : strip_has_zeros(f) ? 16 : strip_scale_bytes(f);
}

// Bytes of the codes of 16 rows by 32.
constexpr int strip_group_bytes(StripFormat f) { return f.code_bits * 64; }

// Codes above 127: a sum of two of them with int8 activations does not fit 16 bits.
constexpr bool strip_codes_wide(StripFormat f) { return f.table || f.code_bits == 8; }

// Offsets within a strip, in bytes.
struct StripShape {
  int64_t groups;  // K / 32
  size_t scales, minima, super, bytes;
  int shift;  // kHalfZero, kFloat, kFloatZero
};

// Where the results of strips go: out[m][n] = product * scale[n] + bias[n] + residual[m][n]. scale, bias and
// residual may be null.
struct StripTarget {
  float* out;
  int64_t out_stride;
  const float* scale;
  const float* bias;
  const float* residual;
  int64_t residual_stride;
  int64_t columns;  // valid outputs from `out` on; the last strip may be partly beyond
  int tokens;       // valid rows
};

// `strips` consecutive strips times one panel of `tile` tokens, or, with AMX, `panels` of them.
struct StripArgs {
  int kind;
  int tile;
  int zero;  // of the codes; decode_strips only, products have it in the panel
  int64_t strips;
  StripShape shape;
  const uint8_t* weights;
  const uint8_t* panel;
  StripTarget target;    // tokens: of the only panel, or of all
  int64_t panels;        // AMX: panels one after another, for tokens one after another
  int64_t panel_stride;  // AMX: bytes between them
  uint8_t* scratch;      // AMX: K * 16 bytes for unpacked codes
};

// `strips` consecutive strips times a few rows of f32, without rounding; schemes of f32 scales only.
struct ExactStripArgs {
  int kind;
  int zero;  // of the codes, in schemes without zero points
  int64_t strips;
  StripShape shape;
  const uint8_t* weights;
  const float* x;  // [target.tokens][x_stride], groups * 32 of each row are read
  int64_t x_stride;
  const float* sums;  // [target.tokens][sums_stride]: of x over each part of a group
  int64_t sums_stride;
  StripTarget target;
};

// Int8 panel: for each group of 32 along K
//   int8 codes [tile][32], f32 scales [tile], then 32-bit corrections [parts][tile]: for schemes with minima
//   f32 scale * sum(codes), else int32 -zero * sum(codes).
constexpr int64_t int8_record_bytes(int tile, int parts) { return int64_t{tile} * (32 + 4 + 4 * parts); }

// Activations of one token to its places in the panel.
struct Int8PanelArgs {
  const float* x;  // [groups * 32]
  int64_t groups;
  uint8_t* panel;  // of the tile
  int tile, token;
  int parts;
  bool minimum;
  int zero;
};

}  // namespace bolide
