// No kernel of GPUs. Linked in place of lists_cuda.cc in builds without CUDA.
#include "kernels/registry.h"

namespace bolide {

const KernelRegistry& cuda_kernels() {
  static const KernelRegistry kRegistry(std::span<const std::span<const Kernel>>{});
  return kRegistry;
}

}  // namespace bolide
