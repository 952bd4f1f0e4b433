#include "kernels/general/general.h"

namespace bolide {

bool can_follow_product(ElementOp op) {
  switch (op) {
    case ElementOp::kCopy:
    case ElementOp::kRelu:
    case ElementOp::kSigmoid:
    case ElementOp::kTanh:
    case ElementOp::kGelu:
    case ElementOp::kGeluTanh:
    case ElementOp::kSilu:
    case ElementOp::kHardSigmoid:
    case ElementOp::kHardSwish:
    case ElementOp::kLeakyRelu:
    case ElementOp::kClip: return true;
    default: return false;
  }
}

}  // namespace bolide
