#include "kernels/norm/norm_cuda.h"

#include "kernels/common/cuda.h"
#include "kernels/norm/norm_cuda_parts.h"

namespace bolide {
namespace {

// The last kWeights operands are f32 vectors, the others and the outputs activations; a sum has its residual's type.
template <class Attributes, int kWeights>
bool supports(const Problem& problem) {
  if (attributes<Attributes>(problem) == nullptr) return false;
  const auto activations = [](std::span<const ValueType> types) {
    return std::all_of(types.begin(), types.end(), [](const ValueType& type) { return is_activation(type.dtype); });
  };
  return all_f32(problem.in.last(kWeights)) && activations(problem.in.first(problem.in.size() - kWeights)) &&
         activations(problem.out) && (problem.out.size() == 1 || problem.out[0].dtype == problem.in[1].dtype);
}

Result<> rms_norm(const Launch& launch, Stream& stream) {
  const auto& op = attributes<RmsNorm>(launch);
  const CudaMatrix x = matrix_of(launch.in[0]);
  const int status = cuda::rms_norm(target_of(stream), x, {}, launch.in[1].as<float>(), op.eps,
                                    op.group == 0 ? x.cols : op.group, {}, matrix_of(launch.out[0]));
  return launched(stream, status, "rms_norm_cuda");
}

Result<> add_rms_norm(const Launch& launch, Stream& stream) {
  const auto& op = attributes<AddRmsNorm>(launch);
  const CudaMatrix x = matrix_of(launch.in[0]);
  const int status = cuda::rms_norm(target_of(stream), x, matrix_of(launch.in[1]), launch.in[2].as<float>(), op.eps,
                                    x.cols, matrix_of(launch.out[0]), matrix_of(launch.out[1]));
  return launched(stream, status, "add_rms_norm_cuda");
}

Result<> layer_norm(const Launch& launch, Stream& stream) {
  const auto& op = attributes<LayerNorm>(launch);
  const int status = cuda::layer_norm(target_of(stream), matrix_of(launch.in[0]), launch.in[1].as<float>(),
                                      launch.in[2].as<float>(), op.eps, matrix_of(launch.out[0]));
  return launched(stream, status, "layer_norm_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "rms_norm_cuda", .device = DeviceKind::kCuda, .supports = supports<RmsNorm, 1>, .launch = rms_norm},
    {.name = "add_rms_norm_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports<AddRmsNorm, 1>,
     .launch = add_rms_norm},
    {.name = "layer_norm_cuda", .device = DeviceKind::kCuda, .supports = supports<LayerNorm, 2>, .launch = layer_norm},
};

}  // namespace

std::span<const Kernel> norm_cuda_kernels() { return kKernels; }

}  // namespace bolide
