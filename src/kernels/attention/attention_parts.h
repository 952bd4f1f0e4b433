// The pieces that attention.cc puts into the list.
#pragma once

#include "kernels/kernel.h"

namespace bolide::attention {

Result<> attention_ref(const Launch& launch, Stream& stream);

// Aborts unless the batch's cache is of the op's shape.
void check_cache(const PagedAttention& op, const BatchInputs* batch);

}  // namespace bolide::attention
