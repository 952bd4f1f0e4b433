// Parts of the group of reductions, a file each.
#pragma once

#include <span>

#include "ir/op_def.h"

namespace bolide {

std::span<const OpDef> along_ops();  // reduce_along.cc: ops along one axis

}  // namespace bolide
