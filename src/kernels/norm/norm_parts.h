// The pieces that norm.cc puts into the list.
#pragma once

#include "kernels/kernel.h"

namespace bolide::norm {

Result<> rms_norm_ref(const Launch& launch, Stream& stream);
Result<> add_rms_norm_ref(const Launch& launch, Stream& stream);
Result<> layer_norm_ref(const Launch& launch, Stream& stream);

}  // namespace bolide::norm
