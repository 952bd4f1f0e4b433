// Every kernel of the CPU.
#include "kernels/act/act.h"
#include "kernels/attention/attention.h"
#include "kernels/embed/embed.h"
#include "kernels/gather_rows/gather_rows.h"
#include "kernels/linear/code_strips.h"
#include "kernels/linear/float_strips.h"
#include "kernels/linear/gemv_layout.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/strips.h"
#include "kernels/moe/moe.h"
#include "kernels/norm/norm.h"
#include "kernels/registry.h"
#include "kernels/rope/rope.h"
#include "kernels/sample/sample.h"

namespace bolide {

const KernelRegistry& cpu_kernels() {
  static const std::span<const Kernel> kLists[] = {
      linear_kernels(),    moe_kernels(), embed_kernels(),       norm_kernels(),   rope_kernels(),
      attention_kernels(), act_kernels(), gather_rows_kernels(), sample_kernels(),
  };
  static const KernelRegistry kRegistry(kLists);
  return kRegistry;
}

const Packing* find_packing(std::string_view name) {
  for (const Packing* packing : {&kStripPacking, &kFloatPacking, &kCodePacking, &kW4PiecesG128, &kW4PiecesG32})
    if (packing->name == name) return packing;
  return nullptr;
}

const KernelRegistry& batch_invariant_cpu_kernels() {
  static const KernelRegistry kRegistry(cpu_kernels(), [](const Kernel& kernel) { return kernel.batch_invariant; });
  return kRegistry;
}

}  // namespace bolide
