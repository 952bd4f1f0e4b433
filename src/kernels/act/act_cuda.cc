#include "kernels/act/act_cuda.h"

#include "kernels/act/act_cuda_parts.h"
#include "kernels/common/cuda.h"

namespace bolide {
namespace {

static_assert(static_cast<int>(cuda::Elementwise::kSilu) == static_cast<int>(ActKind::kSilu) &&
                  static_cast<int>(cuda::Elementwise::kGelu) == static_cast<int>(ActKind::kGelu) &&
                  static_cast<int>(cuda::Elementwise::kGeluTanh) == static_cast<int>(ActKind::kGeluTanh) &&
                  static_cast<int>(cuda::Elementwise::kRelu) == static_cast<int>(ActKind::kRelu),
              "an ActKind is an Elementwise");

template <class Attributes>
bool supports(const Problem& problem) {
  const auto fits = [](const ValueType& type) { return is_activation(type.dtype); };
  return attributes<Attributes>(problem) != nullptr && std::all_of(problem.in.begin(), problem.in.end(), fits) &&
         fits(problem.out[0]);
}

// (gate [T, F], up [T, F]) or (gate|up [T, 2F]) -> [T, F].
Result<> gated_act(const Launch& launch, Stream& stream) {
  CudaMatrix gate = matrix_of(launch.in[0]), up;
  if (launch.in.size() == 2) {
    up = matrix_of(launch.in[1]);
  } else {
    gate.cols /= 2;
    up = gate;
    up.data = launch.in[0].data + gate.cols * (gate.dtype == DType::kBF16 ? 2 : 4);
  }
  const auto act = static_cast<cuda::Elementwise>(attributes<GatedAct>(launch).act);
  return launched(stream, cuda::elementwise(target_of(stream), act, gate, up, matrix_of(launch.out[0])),
                  "gated_act_cuda");
}

Result<> activate(const Launch& launch, Stream& stream) {
  const auto act = static_cast<cuda::Elementwise>(attributes<Activate>(launch).act);
  const int status = cuda::elementwise(target_of(stream), act, matrix_of(launch.in[0]), {}, matrix_of(launch.out[0]));
  return launched(stream, status, "activate_cuda");
}

Result<> add(const Launch& launch, Stream& stream) {
  const int status = cuda::elementwise(target_of(stream), cuda::Elementwise::kAdd, matrix_of(launch.in[0]),
                                       matrix_of(launch.in[1]), matrix_of(launch.out[0]));
  return launched(stream, status, "add_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "gated_act_cuda", .device = DeviceKind::kCuda, .supports = supports<GatedAct>, .launch = gated_act},
    {.name = "activate_cuda", .device = DeviceKind::kCuda, .supports = supports<Activate>, .launch = activate},
    {.name = "add_cuda", .device = DeviceKind::kCuda, .supports = supports<Add>, .launch = add},
};

}  // namespace

std::span<const Kernel> act_cuda_kernels() { return kKernels; }

}  // namespace bolide
