#include "kernels/registry.h"

namespace bolide {

KernelRegistry::KernelRegistry(std::span<const std::span<const Kernel>> lists) {
  for (const std::span<const Kernel> list : lists)
    for (const Kernel& kernel : list) kernels_.push_back(&kernel);
}

KernelRegistry::KernelRegistry(const KernelRegistry& all, bool (*keep)(const Kernel&)) {
  for (const Kernel* kernel : all.all())
    if (keep(*kernel)) kernels_.push_back(kernel);
}

std::vector<const Kernel*> KernelRegistry::candidates(const Problem& problem) const {
  std::vector<const Kernel*> found;
  for (const Kernel* kernel : kernels_)
    if (kernel->device == problem.device->id.kind && kernel->supports(problem)) found.push_back(kernel);
  return found;
}

const Kernel* KernelRegistry::find(std::string_view name) const {
  for (const Kernel* kernel : kernels_)
    if (kernel->name == name) return kernel;
  return nullptr;
}

}  // namespace bolide
