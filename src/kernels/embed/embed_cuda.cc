#include "kernels/embed/embed_cuda.h"

#include "kernels/common/cuda.h"
#include "kernels/embed/embed_cuda_parts.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) {
  if (attributes<Embed>(problem) == nullptr) return false;
  const ValueType& table = problem.in[1];
  return problem.in[0].dtype == DType::kI32 && table.quant == nullptr && is_activation(problem.out[0].dtype) &&
         (table.dtype == DType::kF32 || table.dtype == DType::kF16 || table.dtype == DType::kBF16);
}

Result<> launch(const Launch& launch, Stream& stream) {
  const int status =
      cuda::embed(target_of(stream), launch.in[0].as<int32_t>(), matrix_of(launch.in[1]), matrix_of(launch.out[0]));
  return launched(stream, status, "embed_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "embed_cuda", .device = DeviceKind::kCuda, .supports = supports, .launch = launch},
};

}  // namespace

std::span<const Kernel> embed_cuda_kernels() { return kKernels; }

}  // namespace bolide
