// Reference: sums in f64, one rounding at the end.
#include <cmath>

#include "kernels/common/launch.h"
#include "kernels/norm/norm_parts.h"

namespace bolide::norm {
namespace {

// out = x / sqrt(mean(x^2) + eps) * weight, `count` elements.
void rms_norm_row(const float* x, const float* weight, double eps, int64_t count, float* out) {
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += double{x[i]} * x[i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(count) + eps);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

}  // namespace

Result<> rms_norm_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<RmsNorm>(launch);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  const int64_t group = op.group == 0 ? x.cols() : op.group;
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t i = 0; i < x.cols(); i += group)
      rms_norm_row(x.row<float>(t) + i, launch.in[1].as<float>(), op.eps, group, out.row<float>(t) + i);
  return {};
}

Result<> add_rms_norm_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<AddRmsNorm>(launch);
  const TensorView &x = launch.in[0], &residual = launch.in[1], &sum = launch.out[0], &out = launch.out[1];
  for (int64_t t = 0; t < x.rows(); ++t) {
    float* sum_row = sum.row<float>(t);
    for (int64_t i = 0; i < x.cols(); ++i) sum_row[i] = x.row<float>(t)[i] + residual.row<float>(t)[i];
    rms_norm_row(sum_row, launch.in[2].as<float>(), op.eps, x.cols(), out.row<float>(t));
  }
  return {};
}

Result<> layer_norm_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<LayerNorm>(launch);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  const float *weight = launch.in[1].as<float>(), *bias = launch.in[2].as<float>();
  const auto count = static_cast<double>(x.cols());
  for (int64_t t = 0; t < x.rows(); ++t) {
    const float* row = x.row<float>(t);
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < x.cols(); ++i) mean += row[i];
    mean /= count;
    for (int64_t i = 0; i < x.cols(); ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double scale = 1 / std::sqrt(squares / count + op.eps);
    for (int64_t i = 0; i < x.cols(); ++i)
      out.row<float>(t)[i] = static_cast<float>((row[i] - mean) * scale * weight[i] + bias[i]);
  }
  return {};
}

}  // namespace bolide::norm
