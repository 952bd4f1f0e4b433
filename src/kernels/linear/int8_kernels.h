// The int8 product's inner kernels, one function each per instruction set. No includes of the standard library here:
// instruction-set files include this.
#pragma once

#include "kernels/linear/strip_format.h"

namespace bolide {

// The 16 values of the iq4 schemes plus 128, which makes them unsigned, written as signed bytes.
#define BOLIDE_IQ4_TABLE 1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15

namespace vnni {
// tile is one of 1, 2, 3, 4, 6, 8, 12.
void int8_strips(const StripArgs& args);
void int8_panel(const Int8PanelArgs& args);
// Weights of one strip as f32 [K][16].
void decode_strip(const StripArgs& args, float* out);
void exact_strips(const ExactStripArgs& args);
}  // namespace vnni

namespace avx2 {
// tile is one of 1, 2, 4.
void int8_strips(const StripArgs& args);
void int8_panel(const Int8PanelArgs& args);
void decode_strip(const StripArgs& args, float* out);
void exact_strips(const ExactStripArgs& args);
}  // namespace avx2

namespace amx {
// tile is 16; panels and scratch are used.
void int8_strips(const StripArgs& args);
}  // namespace amx

}  // namespace bolide
