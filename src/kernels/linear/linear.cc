#include "kernels/linear/linear.h"

#include <array>

#include "kernels/linear/linear_parts.h"

namespace bolide {

std::span<const Kernel> linear_kernels() {
  static const std::array kernels = {kLinearRef};
  return kernels;
}

}  // namespace bolide
