// Linear by definition: any weight type, f64 sums, natural rows. Decodes each weight row once per launch.
#include <algorithm>
#include <vector>

#include "kernels/linear/linear_parts.h"
#include "kernels/linear/rounding.h"
#include "tensor/block_codec.h"
#include "tensor/half.h"

namespace bolide {
namespace {

constexpr int64_t kRowsPerChunk = 16;

bool supports(const Problem& problem) {
  const auto* op = std::get_if<Linear>(problem.op);
  if (op == nullptr || !op->is_plain()) return false;
  const ValueType& weight = problem.in[1];
  return weight.quant != nullptr || is_float(weight.dtype) || weight.dtype == DType::kI8;
}

Result<> launch(const Launch& launch, Stream& stream) {
  const auto& op = std::get<Linear>(*launch.op);
  const TensorView& x = launch.in[0];
  const TensorView& weight = launch.in[1];
  const TensorView& out = launch.out[0];
  const int64_t tokens = x.rows(), k = x.cols(), n = weight.rows();
  const LinearInputs at = inputs_of(op);
  const float* scale = op.has_scale ? launch.in[static_cast<size_t>(at.scale)].as<float>() : nullptr;
  const float* bias = op.has_bias ? launch.in[static_cast<size_t>(at.bias)].as<float>() : nullptr;
  const TensorView* residual = op.has_residual ? &launch.in[static_cast<size_t>(at.residual)] : nullptr;
  const size_t bytes = row_bytes(weight.dtype, weight.quant, k);

  std::vector<double> rounded(static_cast<size_t>(tokens * k));
  for (int64_t t = 0; t < tokens; ++t)
    round_token(op.compute, op.rounding, x.row<const float>(t), k, rounded.data() + t * k);

  const auto chunks = static_cast<int64_t>(ceil_div(static_cast<uint64_t>(n), kRowsPerChunk));
  stream.workers().run(chunks, [&](int64_t chunk, int) {
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t i = chunk * kRowsPerChunk; i < std::min(n, (chunk + 1) * kRowsPerChunk); ++i) {
      decode_row(weight.dtype, weight.quant, weight.data + static_cast<size_t>(i) * bytes, k, row.data());
      if (op.compute == Compute::kBF16)
        for (float& w : row) w = bf16_to_f32(f32_to_bf16(w));
      for (int64_t t = 0; t < tokens; ++t) {
        double sum = bias != nullptr ? static_cast<double>(bias[i]) : 0.;
        if (residual != nullptr) sum += static_cast<double>(residual->row<const float>(t)[i]);
        const double* a = rounded.data() + t * k;
        double product = 0;
        for (int64_t j = 0; j < k; ++j) product += a[j] * static_cast<double>(row[static_cast<size_t>(j)]);
        if (scale != nullptr) product *= static_cast<double>(scale[i]);
        out.row<float>(t)[i] = static_cast<float>(sum + product);
      }
    }
  });
  return {};
}

}  // namespace

constexpr Kernel kLinearRef{.name = "linear_ref", .supports = supports, .launch = launch, .reference = true};

}  // namespace bolide
