// Functions of one value of 8 bits as tables of codes, for fuse_quantised.
#pragma once

#include <optional>

#include "passes/general/rewriter.h"

namespace bolide {

struct CodeTable {
  ValueId source = kNoValue;  // codes of u8 or i8
  Tensor table;               // [256] codes, by the byte of a source's code
};
// What the QuantizeLinear `id` makes, if it is made of one value of 8 bits and of single numbers by elementwise ops
// alone, whatever they are: the graph between is run on all codes.
std::optional<CodeTable> table_of_codes(const Rewriter& r, NodeId id);

}  // namespace bolide
