// com.microsoft: DynamicQuantizeLSTM, which ONNX Runtime's quantiser makes of LSTM: weights are integers, and what they
// multiply is rounded to u8 over the range that it has at that moment, X once and the state at every step.
#include <fmt/format.h>

#include <algorithm>

#include "ops/microsoft.h"
#include "ops/prepared_rows.h"
#include "ops/recurrent.h"
#include "tensor/caching_pool.h"

namespace bolide {
namespace {

// Inputs: X, W [directions, I, 4 * H], R [directions, H, 4 * H], B, sequence_lens, initial_h, initial_c, P, then scale
// and zero point of W and of R: one for a direction, or one for each of its columns.
constexpr size_t kLstmInputs = 8;

// W or R as LSTM has it, [directions, 4 * H, rows].
Result<Tensor> plain_weights(const Tensor& codes, const Tensor& scale, const Tensor* zero, TensorPool& pool) {
  if (codes.rank() != 3 || (codes.dtype() != DType::kI8 && codes.dtype() != DType::kU8))
    return error(Code::kInvalid, fmt::format("weights are {}{}, expected three dims of i8 or u8",
                                             to_string(codes.dtype()), to_string(codes.shape())));
  const int64_t directions = codes.dim(0), rows = codes.dim(1), columns = codes.dim(2);
  const auto is_for = [&](const Tensor& t) {
    return t.elements() == directions || t.elements() == directions * columns;
  };
  if (scale.dtype() != DType::kF32 || !is_for(scale))
    return error(Code::kInvalid, fmt::format("the scale of weights {} is {}{}", to_string(codes.shape()),
                                             to_string(scale.dtype()), to_string(scale.shape())));
  if (zero != nullptr && (zero->dtype() != codes.dtype() || !is_for(*zero)))
    return error(Code::kInvalid,
                 fmt::format("the zero point of weights {}{} is {}{}", to_string(codes.dtype()),
                             to_string(codes.shape()), to_string(zero->dtype()), to_string(zero->shape())));
  BOLIDE_TRY(Tensor to, Tensor::make(DType::kF32, {directions, columns, rows}, pool));
  const auto code = [](const Tensor& t, int64_t i) -> float {
    return t.dtype() == DType::kI8 ? t.as<int8_t>()[static_cast<size_t>(i)] : t.as<uint8_t>()[static_cast<size_t>(i)];
  };
  const auto place = [&](const Tensor& t, int64_t d, int64_t j) {
    return t.elements() == directions * columns ? d * columns + j : d;
  };
  float* out = to.mutate<float>().data();
  for (int64_t d = 0; d < directions; ++d)
    for (int64_t j = 0; j < columns; ++j) {
      const float step = scale.as<float>()[static_cast<size_t>(place(scale, d, j))];
      const float origin = zero != nullptr ? code(*zero, place(*zero, d, j)) : 0;
      for (int64_t i = 0; i < rows; ++i) *out++ = (code(codes, (d * rows + i) * columns + j) - origin) * step;
    }
  return to;
}

// An LSTM on what the integers mean, by `fast` (which may be null) where that can.
Result<> run_with(RunContext& c, const Tensor& w, const Tensor& r, const PreparedOp* fast) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->dtype() != DType::kF32) return error(Code::kInvalid, fmt::format("X is of {}", to_string(x->dtype())));
  BOLIDE_TRY(Tensor rounded, c.scratch(DType::kF32, x->shape()));
  std::copy(x->as<float>().begin(), x->as<float>().end(), rounded.mutate<float>().begin());
  round_to_u8(rounded.mutate<float>());
  const AnyValue values[] = {std::move(rounded), w, r};
  std::vector<const AnyValue*> in;
  for (size_t i = 0; i < kLstmInputs; ++i) in.push_back(i < 3 ? &values[i] : c.value(i));
  std::vector<AnyValue> out(c.outputs());
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kNotFound, "has no graph");
  };
  RunContext inside(c.attributes(), c.version(), in, out, c.workers(), c.pool(), no_body);
  bool done = false;
  if (fast != nullptr) {
    BOLIDE_TRY(done, fast->run(inside));
  }
  if (!done) BOLIDE_TRY(run_lstm(inside, /*rounds_state=*/true));
  for (size_t i = 0; i < out.size(); ++i) c.set(i, std::move(out[i]));
  return {};
}

class DynamicLstm final : public PreparedOp {
 public:
  DynamicLstm(Tensor w, Tensor r, std::unique_ptr<PreparedOp> fast)
      : w_(std::move(w)), r_(std::move(r)), fast_(std::move(fast)) {}
  std::string_view kernel() const override { return fast_ != nullptr ? fast_->kernel() : "lstm_dynamic_u8"; }
  size_t bytes() const override { return w_.bytes() + r_.bytes() + (fast_ != nullptr ? fast_->bytes() : 0); }
  bool holds(size_t input) const override { return input == 1 || input == 2; }
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(run_with(c, w_, r_, fast_.get()));
    return true;
  }

 private:
  Tensor w_, r_;  // for what fast_ does not do
  std::unique_ptr<PreparedOp> fast_;
};

}  // namespace

Result<> run_dynamic_quantize_lstm(RunContext& c) {
  Tensor weights[2];
  for (size_t i = 0; i < 2; ++i) {
    BOLIDE_TRY(const Tensor* codes, c.tensor(1 + i));
    BOLIDE_TRY(const Tensor* scale, c.tensor(kLstmInputs + 2 * i));
    BOLIDE_TRY(const Tensor* zero, c.tensor_if(kLstmInputs + 2 * i + 1));
    BOLIDE_TRY(weights[i], plain_weights(*codes, *scale, zero, c.pool()));
  }
  return run_with(c, weights[0], weights[1], nullptr);
}

Result<std::unique_ptr<PreparedOp>> prepare_dynamic_quantize_lstm(const PrepareContext& context) {
  Tensor weights[2];
  for (size_t i = 0; i < 2; ++i) {
    const Tensor* codes = context.constant(1 + i);
    const Tensor* scale = context.constant(kLstmInputs + 2 * i);
    const Tensor* zero = context.constant(kLstmInputs + 2 * i + 1);
    if (codes == nullptr || scale == nullptr || (zero == nullptr && context.has(kLstmInputs + 2 * i + 1)))
      return nullptr;
    BOLIDE_TRY(weights[i], plain_weights(*codes, *scale, zero, packed_pool()));
  }
  BOLIDE_TRY(std::unique_ptr<PreparedOp> fast, prepare_rounded_lstm(context, weights[0], weights[1]));
  return std::make_unique<DynamicLstm>(std::move(weights[0]), std::move(weights[1]), std::move(fast));
}

}  // namespace bolide
