#include "kernels/moe/moe.h"

#include <vector>

#include "kernels/moe/moe_parts.h"

namespace bolide {

std::span<const Kernel> moe_kernels() {
  static const std::vector<Kernel> kernels = [] {
    const auto products = moe_product_kernels();
    std::vector<Kernel> all(products.begin(), products.end());
    all.push_back(kMoeRef);
    return all;
  }();
  return kernels;
}

}  // namespace bolide
