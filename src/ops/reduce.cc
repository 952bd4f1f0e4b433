#include "ops/ops.h"

namespace bolide {

std::span<const OpDef> reduce_ops() { return {}; }

}  // namespace bolide
