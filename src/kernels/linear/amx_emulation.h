// The AMX kernels over tiles emulated in plain code: their loops are tested on machines without AMX. Test program only.
#pragma once

#include "kernels/linear/float_kernels.h"
#include "kernels/linear/strip_format.h"

namespace bolide::amx_emulated {

void int8_strips(const StripArgs& args);
void bf16_strips(const AmxBf16Args& args);
// Uses of tiles against their configuration since the start: must stay 0.
int faults();

}  // namespace bolide::amx_emulated
