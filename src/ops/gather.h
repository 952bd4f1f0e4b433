// The kernels of gather_scatter.cc and gather_select.cc, whose rows are in gather.cc.
#pragma once

#include "ir/op_def.h"

namespace bolide::gather {

Result<> run_scatter_elements(RunContext& c);
Result<> run_scatter_nd(RunContext& c);
Result<> run_unique(RunContext& c);
Result<> run_top_k(RunContext& c);

}  // namespace bolide::gather
