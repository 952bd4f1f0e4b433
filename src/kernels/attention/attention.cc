#include "kernels/attention/attention.h"

#include "kernels/attention/attention_parts.h"
#include "kernels/attention/flash.h"
#include "kernels/common/launch.h"

namespace bolide {
namespace {

bool supports_ref(const Problem& problem) {
  return attributes<PagedAttention>(problem) != nullptr && problem.in[0].dtype == DType::kF32;
}
template <Isa kIsa>
bool supports(const Problem& problem) {
  return supports_ref(problem) && has_isa(problem, kIsa);
}

size_t workspace(const Problem& problem) {
  return attention::flash_workspace(*attributes<PagedAttention>(problem), problem.device->threads,
                                    problem.sizes[Symbol::kSequences]);
}

template <const isa::AttentionFunctions& kFunctions>
Result<> launch(const Launch& launch, Stream& stream) {
  if (launch.batch != nullptr && launch.batch->kv.dtype == DType::kF8E4M3)  // GPUs' type
    return attention::attention_ref(launch, stream);
  return attention::flash(kFunctions, launch, stream);
}

constexpr Kernel kKernels[] = {
    {.name = "attention_avx512",
     .supports = supports<Isa::kAvx512>,
     .workspace = workspace,
     .launch = launch<isa::kAttentionAvx512>},
    {.name = "attention_avx2",
     .supports = supports<Isa::kAvx2>,
     .workspace = workspace,
     .launch = launch<isa::kAttentionAvx2>},
    {.name = "attention_ref", .supports = supports_ref, .launch = attention::attention_ref, .reference = true},
};

}  // namespace

std::span<const Kernel> attention_kernels() { return kKernels; }

}  // namespace bolide
