// Row functions: arithmetic over contiguous f32, what element-wise ops, normalisations and softmax of general graphs
// are made of. One table for each instruction set.
//
// Thread rules: pure functions. Inputs and outputs may be the same row, never overlap otherwise. Nothing outside the
// `count` elements is read or written.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "kernels/rows/rows_isa.h"

namespace bolide {

// Null: none for this level; the caller computes in plain C++.
const isa::RowFunctions* row_functions(Isa isa);

}  // namespace bolide
