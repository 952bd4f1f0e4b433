#include "kernels/rope/rope.h"

#include "kernels/common/launch.h"
#include "kernels/rope/rope_parts.h"

namespace bolide {
namespace {

template <class Attributes>
bool supports(const Problem& problem) {
  return attributes<Attributes>(problem) != nullptr && problem.in[0].dtype == DType::kF32;
}

constexpr Kernel kKernels[] = {
    {.name = "rope_ref", .supports = supports<Rope>, .launch = rope::rope_ref},
    {.name = "rope_kv_write_ref", .supports = supports<RopeKvWrite>, .launch = rope::rope_kv_write_ref},
    {.name = "kv_write_ref", .supports = supports<KvWrite>, .launch = rope::kv_write_ref},
};

}  // namespace

std::span<const Kernel> rope_kernels() { return kKernels; }

}  // namespace bolide
