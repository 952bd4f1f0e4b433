// The fields of one block of a block scheme, unpacked: what is stored, with nothing computed. write_block is the exact
// inverse of read_block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/quant.h"

namespace bolide {

struct BlockFields {
  uint8_t codes[256];  // in order of k, offset so that they are unsigned
  uint8_t scales[16];  // schemes with two levels: innermost scales (two's complement if signed)
  uint8_t minima[16];
  uint16_t scale, minimum;  // f16 bits of the block's own; minimum of w4_*: the zero point
};

void read_block(const QuantScheme& scheme, const std::byte* block, BlockFields* fields);
void write_block(const QuantScheme& scheme, const BlockFields& fields, std::byte* block);

}  // namespace bolide
