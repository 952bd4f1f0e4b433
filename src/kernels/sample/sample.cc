#include "kernels/sample/sample.h"

#include "kernels/common/launch.h"
#include "kernels/sample/sample_parts.h"
#include "kernels/sample/select.h"

namespace bolide {
namespace {

bool supports_ref(const Problem& problem) {
  return attributes<Sample>(problem) != nullptr && problem.in[0].dtype == DType::kF32;
}
template <Isa kIsa>
bool supports(const Problem& problem) {
  return supports_ref(problem) && has_isa(problem, kIsa);
}

size_t workspace(const Problem& problem) {
  return sample::select_workspace(problem.in[0].last().at(problem.sizes), problem.device->threads);
}

template <const isa::SampleFunctions& kFunctions>
Result<> launch(const Launch& launch, Stream& stream) {
  return sample::select(kFunctions, launch, stream);
}

constexpr Kernel kKernels[] = {
    {.name = "sample_avx512",
     .supports = supports<Isa::kAvx512>,
     .workspace = workspace,
     .launch = launch<isa::kSampleAvx512>},
    {.name = "sample_avx2",
     .supports = supports<Isa::kAvx2>,
     .workspace = workspace,
     .launch = launch<isa::kSampleAvx2>},
    {.name = "sample_ref", .supports = supports_ref, .launch = sample::sample_ref, .reference = true},
};

}  // namespace

std::span<const Kernel> sample_kernels() { return kKernels; }

}  // namespace bolide
