// The AMX products over tiles emulated in plain code: their loops are tested on machines without AMX. Test program
// only.
#pragma once

#include "kernels/igemm_int8/igemm_int8.h"

namespace bolide::amx_emulated {

void int8_block(const Int8BlockArgs& args);
void int8_lines(const Int8LinesArgs& args);
// Uses of tiles against their configuration since the start: must stay 0.
int int8_block_faults();

}  // namespace bolide::amx_emulated
