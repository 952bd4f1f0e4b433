#include "kernels/norm/norm.h"

#include "kernels/common/launch.h"
#include "kernels/norm/norm_isa.h"
#include "kernels/norm/norm_parts.h"

namespace bolide {
namespace {

template <class Attributes, Isa kIsa>
bool supports(const Problem& problem) {
  return attributes<Attributes>(problem) != nullptr && all_f32(problem.in) && has_isa(problem, kIsa);
}

template <const isa::NormFunctions& kFunctions>
Result<> rms_norm(const Launch& launch, Stream& stream) {
  const auto& op = attributes<RmsNorm>(launch);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  const int64_t group = op.group == 0 ? x.cols() : op.group;
  for_rows(stream.workers(), x.rows(), x.cols() / 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t i = 0; i < x.cols(); i += group)
        kFunctions.rms(x.row<float>(t) + i, launch.in[1].as<float>(), op.eps, group, out.row<float>(t) + i);
  });
  return {};
}

template <const isa::NormFunctions& kFunctions>
Result<> add_rms_norm(const Launch& launch, Stream& stream) {
  const auto& op = attributes<AddRmsNorm>(launch);
  const TensorView &x = launch.in[0], &residual = launch.in[1], &total = launch.out[0], &out = launch.out[1];
  for_rows(stream.workers(), x.rows(), x.cols() / 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      kFunctions.add_rms(x.row<float>(t), residual.row<float>(t), launch.in[2].as<float>(), op.eps, x.cols(),
                         total.row<float>(t), out.row<float>(t));
  });
  return {};
}

template <const isa::NormFunctions& kFunctions>
Result<> layer_norm(const Launch& launch, Stream& stream) {
  const auto& op = attributes<LayerNorm>(launch);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  for_rows(stream.workers(), x.rows(), x.cols() / 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      kFunctions.layer(x.row<float>(t), launch.in[1].as<float>(), launch.in[2].as<float>(), op.eps, x.cols(),
                       out.row<float>(t));
  });
  return {};
}

constexpr Kernel kKernels[] = {
    {.name = "rms_norm_avx512", .supports = supports<RmsNorm, Isa::kAvx512>, .launch = rms_norm<isa::kNormAvx512>},
    {.name = "rms_norm_avx2", .supports = supports<RmsNorm, Isa::kAvx2>, .launch = rms_norm<isa::kNormAvx2>},
    {.name = "rms_norm_ref",
     .supports = supports<RmsNorm, Isa::kScalar>,
     .launch = norm::rms_norm_ref,
     .reference = true},
    {.name = "add_rms_norm_avx512",
     .supports = supports<AddRmsNorm, Isa::kAvx512>,
     .launch = add_rms_norm<isa::kNormAvx512>},
    {.name = "add_rms_norm_avx2", .supports = supports<AddRmsNorm, Isa::kAvx2>, .launch = add_rms_norm<isa::kNormAvx2>},
    {.name = "add_rms_norm_ref",
     .supports = supports<AddRmsNorm, Isa::kScalar>,
     .launch = norm::add_rms_norm_ref,
     .reference = true},
    {.name = "layer_norm_avx512",
     .supports = supports<LayerNorm, Isa::kAvx512>,
     .launch = layer_norm<isa::kNormAvx512>},
    {.name = "layer_norm_avx2", .supports = supports<LayerNorm, Isa::kAvx2>, .launch = layer_norm<isa::kNormAvx2>},
    {.name = "layer_norm_ref",
     .supports = supports<LayerNorm, Isa::kScalar>,
     .launch = norm::layer_norm_ref,
     .reference = true},
};

}  // namespace

std::span<const Kernel> norm_kernels() { return kKernels; }

}  // namespace bolide
