#include "ops/ops.h"

namespace bolide {

std::span<const OpDef> image_ops() { return {}; }

}  // namespace bolide
