// KernelRegistry: every kernel of one device, in explicit lists, fastest first, reference last.
#pragma once

#include <span>
#include <vector>

#include "kernels/kernel.h"

namespace bolide {

class KernelRegistry {
 public:
  explicit KernelRegistry(std::span<const std::span<const Kernel>> lists);
  // The kernels of `all` that `keep` wants, in the same order.
  KernelRegistry(const KernelRegistry& all, bool (*keep)(const Kernel&));

  // Kernels of the problem's device that support it, in list order: the first is the heuristic's choice.
  std::vector<const Kernel*> candidates(const Problem& problem) const;
  // nullptr if no kernel has that name.
  const Kernel* find(std::string_view name) const;
  std::span<const Kernel* const> all() const { return kernels_; }

 private:
  std::vector<const Kernel*> kernels_;
};

// kernels/lists_cpu.cc: the CPU's lists.
const KernelRegistry& cpu_kernels();
// Those of them that are batch-invariant: what --deterministic may use.
const KernelRegistry& batch_invariant_cpu_kernels();

// kernels/lists_cuda.cc: the GPU's lists, for builds with CUDA. lists_cuda_absent.cc: none.
const KernelRegistry& cuda_kernels();

// A layout by its name, as engine files store it; nullptr if there is none. Layouts do not depend on the processor,
// and GPUs' are packed and unpacked by the host: every build knows all of them.
const Packing* find_packing(std::string_view name);

}  // namespace bolide
