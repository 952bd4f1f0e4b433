#include "kernels/moe/moe.h"

#include <array>

#include "kernels/moe/moe_parts.h"

namespace bolide {

std::span<const Kernel> moe_kernels() {
  static const std::array kernels = {kMoeRef};
  return kernels;
}

}  // namespace bolide
