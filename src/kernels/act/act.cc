#include "kernels/act/act.h"

#include "kernels/act/act_parts.h"
#include "kernels/common/launch.h"

namespace bolide {
namespace {

template <class Attributes>
bool supports(const Problem& problem) {
  return attributes<Attributes>(problem) != nullptr && all_f32(problem.in);
}

constexpr Kernel kKernels[] = {
    {.name = "gated_act_ref", .supports = supports<GatedAct>, .launch = act::gated_act_ref},
    {.name = "activate_ref", .supports = supports<Activate>, .launch = act::activate_ref},
    {.name = "add_ref", .supports = supports<Add>, .launch = act::add_ref},
};

}  // namespace

std::span<const Kernel> act_kernels() { return kKernels; }

}  // namespace bolide
