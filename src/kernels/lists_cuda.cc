// Every kernel of GPUs. One line per list; the lists' headers stand beside the kernels.
#include "kernels/embed/embed_cuda.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/registry.h"

namespace bolide {

const KernelRegistry& cuda_kernels() {
  static const std::span<const Kernel> kLists[] = {
      embed_cuda_kernels(),
      norm_cuda_kernels(),
  };
  static const KernelRegistry kRegistry(kLists);
  return kRegistry;
}

}  // namespace bolide
