// Einsum, by products of two operands at a time.
#pragma once

#include "ir/op_def.h"

namespace bolide {

Result<> run_einsum(RunContext& c);

}  // namespace bolide
