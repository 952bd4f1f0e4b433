#include "kernels/sample/sample.h"

#include "kernels/common/launch.h"
#include "kernels/sample/sample_parts.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) {
  return attributes<Sample>(problem) != nullptr && problem.in[0].dtype == DType::kF32;
}

constexpr Kernel kKernels[] = {
    {.name = "sample_ref", .supports = supports, .launch = sample::sample_ref},
};

}  // namespace

std::span<const Kernel> sample_kernels() { return kKernels; }

}  // namespace bolide
