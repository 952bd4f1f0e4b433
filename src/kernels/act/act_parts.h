// The pieces that act.cc puts into the list.
#pragma once

#include "kernels/kernel.h"

namespace bolide::act {

Result<> gated_act_ref(const Launch& launch, Stream& stream);
Result<> activate_ref(const Launch& launch, Stream& stream);
Result<> add_ref(const Launch& launch, Stream& stream);

}  // namespace bolide::act
