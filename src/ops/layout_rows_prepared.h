// Moves of elements made ready: Transpose of f32 that exchanges two runs of axes, Concat and Split by rows.
#pragma once

#include "ops/prepared_op.h"

namespace bolide::layout {

Result<std::unique_ptr<PreparedOp>> prepare_transpose(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_concat(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_split(const PrepareContext& context);

}  // namespace bolide::layout
