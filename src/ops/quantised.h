// Ops of ours on 8-bit codes, real = scale * (code - zero): what passes make of DequantizeLinear, a float op and
// QuantizeLinear. Domain "bolide"; x and y of QConv and QMaxPool have their channels last.
//
//   QConv    x [N, D1, ..., C], w [M, C / group, K1, ...]: attributes of Conv, and x_channels_first (x is [N, C, ...])
//   QMatMul  x [..., K], w [..., K, N], or [..., N, K] with transB
// Inputs of both are in QuantisedInput's order. The sums are i32; without y's scale the result is f32; with a residual
// y's codes are a term of a second sum. Attributes minimum, maximum (of y's codes), sum_minimum, sum_maximum.
//   QMaxPool  x; attributes of MaxPool
//   QLookUp   x, table of 256 codes by the byte of x
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "ir/op_def.h"
#include "ops/convolution.h"

namespace bolide {

struct PrepareContext;
class PreparedOp;

enum QuantisedInput : size_t {
  kX,
  kXScale,
  kXZero,
  kW,
  kWScale,
  kWZero,
  kYScale,
  kYZero,
  kBias,
  kResidual,
  kResidualScale,
  kResidualZero,
  kSumScale,
  kSumZero,
  kQuantisedInputs
};

// Scales, zeros and bounds of a QConv or QMatMul.
struct QuantisedSpec {
  struct Codes {
    DType dtype = DType::kNone;
    float scale = 1;
    int32_t zero = 0;
    float low = 0, high = 0;  // bounds less the zero
  };
  Codes x, y, residual, sum;
  bool has_codes = false, has_residual = false;
  DType w_dtype = DType::kNone;
  std::vector<float> w_scale;   // 1 or `columns`
  std::vector<int32_t> w_zero;  // 1 or `columns`
  std::vector<int32_t> bias;    // none or `columns`

  float w_scale_of(int64_t n) const { return w_scale[w_scale.size() == 1 ? 0 : static_cast<size_t>(n)]; }
  int32_t w_zero_of(int64_t n) const { return w_zero[w_zero.size() == 1 ? 0 : static_cast<size_t>(n)]; }
  // Of a sum of integers, to y's codes or to a real value.
  float factor(int64_t n) const {
    const float product = x.scale * w_scale_of(n);
    return has_codes ? product / y.scale : product;
  }
  // y's code less its zero times ratio, plus the residual's code times its, plus the rest, is the code of the sum.
  struct Sum {
    float ratio, residual_ratio, rest, low, high;
  };
  Sum second_sum() const {
    const float of_residual = residual.scale / sum.scale;
    const auto zero = static_cast<float>(sum.zero);
    return {y.scale / sum.scale, of_residual, zero - of_residual * static_cast<float>(residual.zero), sum.low + zero,
            sum.high + zero};
  }
  DType out_dtype() const { return !has_codes ? DType::kF32 : has_residual ? sum.dtype : y.dtype; }
};
using QuantisedTensor = FunctionRef<const Tensor*(size_t input)>;  // null: absent
// Checks all but x, w and the residual themselves, but for their types. kInvalid says what is wrong.
Result<QuantisedSpec> read_quantised(const Attributes& attributes, QuantisedTensor tensor, int64_t columns);
// The number of columns that w makes: w's shape and transB.
int64_t quantised_columns(const Shape& w, bool conv, bool transposed);
// The convolution's geometry: x is [N, D1, ..., C], or with x_channels_first [N, C, D1, ...].
Result<Convolution> quantised_convolution(const RunContext& c, const Tensor& x, const Tensor& w, bool channels_first);
// [N, C, D1, ...] as [N, D1, ..., C].
Shape channels_last(const Shape& shape);

std::span<const OpDef> quantised_ops();  // quantised.cc
Result<std::unique_ptr<PreparedOp>> prepare_quantised_conv(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_quantised_matmul(const PrepareContext& context);

}  // namespace bolide
