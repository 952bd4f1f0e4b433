#include "kernels/norm/norm.h"

#include "kernels/common/launch.h"
#include "kernels/norm/norm_parts.h"

namespace bolide {
namespace {

template <class Attributes>
bool supports(const Problem& problem) {
  return attributes<Attributes>(problem) != nullptr && all_f32(problem.in);
}

constexpr Kernel kKernels[] = {
    {.name = "rms_norm_ref", .supports = supports<RmsNorm>, .launch = norm::rms_norm_ref},
    {.name = "add_rms_norm_ref", .supports = supports<AddRmsNorm>, .launch = norm::add_rms_norm_ref},
    {.name = "layer_norm_ref", .supports = supports<LayerNorm>, .launch = norm::layer_norm_ref},
};

}  // namespace

std::span<const Kernel> norm_kernels() { return kKernels; }

}  // namespace bolide
