#include "kernels/attention/attention.h"

#include "kernels/attention/attention_parts.h"
#include "kernels/common/launch.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) {
  return attributes<PagedAttention>(problem) != nullptr && problem.in[0].dtype == DType::kF32;
}

constexpr Kernel kKernels[] = {
    {.name = "attention_ref", .supports = supports, .launch = attention::attention_ref},
};

}  // namespace

std::span<const Kernel> attention_kernels() { return kKernels; }

}  // namespace bolide
