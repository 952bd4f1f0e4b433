// Tiled attention over the functions of one instruction set.
#pragma once

#include "kernels/attention/attention_isa.h"
#include "kernels/kernel.h"

namespace bolide::attention {

// Bytes of scratch for `threads` threads and the bucket's sequences.
size_t flash_workspace(const PagedAttention& op, int threads, int64_t sequences);

Result<> flash(const isa::AttentionFunctions& functions, const Launch& launch, Stream& stream);

}  // namespace bolide::attention
