// Layouts of weights for the GPU's products of few tokens (gemv_cuda.cuh): GGUF's block schemes as
// gemv_block_layout.h says, and those of w4_* as follows. A row is a run of windows of 128
// columns, 64 bytes each, then the constants of its groups; rows are padded to multiples of 16 bytes.
//
//   window: 4 pieces of 16 bytes, one for each thread t of four; word j of a piece has the codes of columns
//           32 j + 8 t .. + 7, from the lowest nibble up 0 2 4 6 1 3 5 7
//   constants: for each group a f16 scale, a u8 zero point and a byte of 0; groups of 128, or of 32 otherwise
#pragma once

#include "kernels/kernel.h"

namespace bolide {

extern const Packing kW4PiecesG128;  // of w4_g128
extern const Packing kW4PiecesG32;   // of w4_g32 and w4_g64
extern const Packing kBlockPieces;   // of q4_0 q4_1 q4_k q5_k q6_k q8_0

// The layout of a w4_* scheme, and its groups; null: another scheme.
inline const Packing* w4_pieces(const QuantScheme* quant) {
  if (quant == &kW4_G128) return &kW4PiecesG128;
  return quant == &kW4_G64 || quant == &kW4_G32 ? &kW4PiecesG32 : nullptr;
}
inline int64_t w4_pieces_group(const QuantScheme* quant) { return quant == &kW4_G128 ? 128 : 32; }

struct PieceRow {
  int64_t groups_from, row_bytes;
};
// Of rows of k columns in groups of `group` (128 or 32).
constexpr PieceRow w4_piece_row(int64_t k, int64_t group) {
  const int64_t windows = (k + 127) / 128, constants = windows * (128 / group) * 4;
  return {windows * 64, windows * 64 + (constants + 15) / 16 * 16};
}

// The layout of any scheme (null: it has none, or there is no scheme), and of its rows of k columns.
const Packing* gemv_packing(const QuantScheme* quant);
PieceRow gemv_row(const QuantScheme* quant, int64_t k);

}  // namespace bolide
