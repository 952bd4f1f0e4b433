// MoeFfn by definition: any weight type, f64 sums, natural rows, one token at a time.
#include <algorithm>
#include <vector>

#include "kernels/linear/rounding.h"
#include "kernels/moe/moe_parts.h"
#include "kernels/moe/routing.h"
#include "tensor/block_codec.h"
#include "tensor/half.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) { return std::holds_alternative<MoeFfn>(*problem.op); }

// y [rows] = weight rows [begin, begin + rows) times x [k].
void multiply(const TensorView& weight, int64_t begin, int64_t rows, Compute compute, const double* x, int64_t k,
              std::vector<float>& row, double* y) {
  const size_t bytes = row_bytes(weight.dtype, weight.quant, k);
  row.resize(static_cast<size_t>(k));
  for (int64_t i = 0; i < rows; ++i) {
    decode_row(weight.dtype, weight.quant, weight.data + static_cast<size_t>(begin + i) * bytes, k, row.data());
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      const float w = row[static_cast<size_t>(j)];
      sum += x[j] * static_cast<double>(compute == Compute::kBF16 ? bf16_to_f32(f32_to_bf16(w)) : w);
    }
    y[i] = sum;
  }
}

Result<> launch(const Launch& launch, Stream& stream) {
  const auto& op = std::get<MoeFfn>(*launch.op);
  const TensorView &x = launch.in[0], &router = launch.in[1], &gate_up = launch.in[2], &down = launch.in[3];
  const TensorView& out = launch.out[0];
  const int64_t e = x.cols(), f = down.shape[-1];

  stream.workers().run(x.rows(), [&](int64_t t, int) {
    std::vector<double> input(static_cast<size_t>(e)), both(static_cast<size_t>(2 * f)), hidden(static_cast<size_t>(f));
    std::vector<double> y(static_cast<size_t>(e)), sum(static_cast<size_t>(e)), wide(static_cast<size_t>(op.experts));
    std::vector<float> row, scores(static_cast<size_t>(op.experts)), narrow(static_cast<size_t>(f));
    std::vector<int32_t> experts(static_cast<size_t>(op.top_k));
    std::vector<float> weights(static_cast<size_t>(op.top_k));

    const float* token = x.row<const float>(t);
    round_token(Compute::kF32, InputRounding::kNone, token, e, input.data());
    multiply(router, 0, op.experts, Compute::kF32, input.data(), e, row, wide.data());
    std::copy(wide.begin(), wide.end(), scores.begin());
    choose_experts(op, scores.data(), experts.data(), weights.data());

    round_token(op.compute, InputRounding::kNone, token, e, input.data());
    for (size_t j = 0; j < experts.size(); ++j) {
      const int64_t expert = experts[j];
      multiply(gate_up, expert * 2 * f, 2 * f, op.compute, input.data(), e, row, both.data());
      for (size_t i = 0; i < narrow.size(); ++i)
        narrow[i] = static_cast<float>(activate(op.act, both[i]) * both[i + narrow.size()]);
      round_token(op.compute, InputRounding::kNone, narrow.data(), f, hidden.data());
      multiply(down, expert * e, e, op.compute, hidden.data(), f, row, y.data());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(weights[j]) * y[i];
    }
    for (size_t i = 0; i < sum.size(); ++i) out.row<float>(t)[i] = static_cast<float>(sum[i]);
  });
  return {};
}

}  // namespace

constexpr Kernel kMoeRef{.name = "moe_ref", .supports = supports, .launch = launch, .reference = true};

}  // namespace bolide
