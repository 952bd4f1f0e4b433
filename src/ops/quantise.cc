#include "ops/ops.h"

namespace bolide {

std::span<const OpDef> quantise_ops() { return {}; }

}  // namespace bolide
