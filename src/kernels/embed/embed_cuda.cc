#include "kernels/embed/embed_cuda.h"

#include "kernels/common/cuda.h"
#include "kernels/common/cuda_weight.h"
#include "kernels/embed/embed_cuda_parts.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) {
  if (attributes<Embed>(problem) == nullptr) return false;
  const ValueType& table = problem.in[1];
  return problem.in[0].dtype == DType::kI32 && is_activation(problem.out[0].dtype) &&
         weight_kind(table.dtype, table.quant) != WeightKind::kNone && table.last().factor <= INT32_MAX;
}

Result<> launch(const Launch& launch, Stream& stream) {
  const auto* ids = launch.in[0].as<int32_t>();
  const TensorView& table = launch.in[1];
  const CudaMatrix out = matrix_of(launch.out[0]);
  const bool plain = table.quant == nullptr &&
                     (table.dtype == DType::kF32 || table.dtype == DType::kF16 || table.dtype == DType::kBF16);
  const int status = plain ? cuda::embed(target_of(stream), ids, matrix_of(table), out)
                           : cuda::embed_decoded(target_of(stream), ids, weight_of(table), out);
  return launched(stream, status, "embed_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "embed_cuda", .device = DeviceKind::kCuda, .supports = supports, .launch = launch},
};

}  // namespace

std::span<const Kernel> embed_cuda_kernels() { return kKernels; }

}  // namespace bolide
