// The loops over panels, strips and threads around the inner kernels, apart from the instruction set: what product
// methods are made of, and what tests run with emulated instructions.
#pragma once

#include <span>

#include "kernels/linear/float_kernels.h"
#include "kernels/linear/product.h"
#include "kernels/linear/strip_format.h"

namespace bolide {

struct Int8Engine {
  std::span<const int> tiles;  // tokens in a panel, ascending
  void (*strips)(const StripArgs&);
  void (*panel)(const Int8PanelArgs&);
  int wide_offset;  // what the kernel subtracts from wide codes (strip_codes_wide) itself
  bool many;        // takes several panels in a call, and scratch
};
size_t int8_workspace(const Int8Engine& engine, const ValueType& weight, int64_t tokens_max, int threads);
void run_int8(const Int8Engine& engine, const Product& p, Workers& workers);

// bf16 strips and rows of bf16 activations in tiles of 16 tokens.
size_t bf16_tiles_workspace(const ValueType& weight, int64_t tokens_max, int threads);
void run_bf16_tiles(void (*strips)(const AmxBf16Args&), const Product& p, Workers& workers);

}  // namespace bolide
