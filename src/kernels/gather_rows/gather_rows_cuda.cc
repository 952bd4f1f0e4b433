#include "kernels/gather_rows/gather_rows_cuda.h"

#include "kernels/common/cuda.h"
#include "kernels/embed/embed_cuda_parts.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) {
  return attributes<GatherRows>(problem) != nullptr && is_activation(problem.in[0].dtype) &&
         is_activation(problem.out[0].dtype);
}

// (x [T, E], rows i32 [R]) -> [R, E]: an embedding whose table is x.
Result<> launch(const Launch& launch, Stream& stream) {
  const int status =
      cuda::embed(target_of(stream), launch.in[1].as<int32_t>(), matrix_of(launch.in[0]), matrix_of(launch.out[0]));
  return launched(stream, status, "gather_rows_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "gather_rows_cuda", .device = DeviceKind::kCuda, .supports = supports, .launch = launch},
};

}  // namespace

std::span<const Kernel> gather_rows_cuda_kernels() { return kKernels; }

}  // namespace bolide
