// Reference: functions in f64, one rounding at the end.
#include <cmath>

#include "kernels/act/act_parts.h"
#include "kernels/common/launch.h"

namespace bolide::act {
namespace {

// GELU: Hendrycks & Gimpel 2016 (arXiv:1606.08415), exact and with tanh.
double activation(ActKind kind, double x) {
  switch (kind) {
    case ActKind::kSilu: return x / (1 + std::exp(-x));
    case ActKind::kGelu: return 0.5 * x * std::erfc(-x * 0.70710678118654752440);
    case ActKind::kGeluTanh: return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case ActKind::kRelu: return x < 0 ? 0 : x;
  }
  return x;
}

}  // namespace

Result<> gated_act_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<GatedAct>(launch);
  const TensorView& out = launch.out[0];
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = launch.in[0].row<float>(t);
    const float* up = launch.in.size() == 2 ? launch.in[1].row<float>(t) : gate + out.cols();
    for (int64_t i = 0; i < out.cols(); ++i)
      out.row<float>(t)[i] = static_cast<float>(activation(op.act, gate[i]) * up[i]);
  }
  return {};
}

Result<> activate_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<Activate>(launch);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  for (int64_t t = 0; t < out.rows(); ++t)
    for (int64_t i = 0; i < out.cols(); ++i)
      out.row<float>(t)[i] = static_cast<float>(activation(op.act, x.row<float>(t)[i]));
  return {};
}

Result<> add_ref(const Launch& launch, Stream&) {
  const TensorView &x = launch.in[0], &y = launch.in[1], &out = launch.out[0];
  for (int64_t t = 0; t < out.rows(); ++t)
    for (int64_t i = 0; i < out.cols(); ++i) out.row<float>(t)[i] = x.row<float>(t)[i] + y.row<float>(t)[i];
  return {};
}

}  // namespace bolide::act
