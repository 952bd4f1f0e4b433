// Pools over regions of interest.
#pragma once

#include "ir/op_def.h"

namespace bolide {

Result<> run_max_roi_pool(RunContext& c);
Result<> run_roi_align(RunContext& c);

}  // namespace bolide
