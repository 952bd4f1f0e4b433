// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
#include <optional>

#include "ops/attribute.h"
#include "ops/cast.h"
#include "ops/number.h"
#include "ops/shape.h"
#include "ops/softmax.h"

namespace bolide {
namespace {

// x [N, C, ...] floats, target [N, ...] i32 or i64, weight [C] floats if there is one.
struct LossInputs {
  const Tensor* x = nullptr;
  std::vector<int64_t> target;
  Shape shape;  // of target
  std::vector<double> weight;
};

Result<LossInputs> loss_inputs(RunContext& c) {
  LossInputs in;
  BOLIDE_TRY(in.x, c.tensor(0));
  BOLIDE_TRY(const Tensor* target, c.tensor(1));
  BOLIDE_TRY(const Tensor* weight, c.tensor_if(2));
  BOLIDE_TRY(dispatch(kFloats, in.x->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  if (in.x->rank() < 2)
    return error(Code::kInvalid, fmt::format("input 0 is {}, expected [N, C, ...]", to_string(in.x->shape())));
  in.shape.rank = in.x->rank() - 1;
  for (int i = 0, from = 0; i < in.shape.rank; ++i, ++from) {
    if (from == 1) ++from;
    in.shape[i] = in.x->dim(from);
  }
  if (target->shape() != in.shape)
    return error(Code::kInvalid,
                 fmt::format("targets are {}, expected {}", to_string(target->shape()), to_string(in.shape)));
  if (target->dtype() != DType::kI64 && target->dtype() != DType::kI32)
    return error(Code::kInvalid, fmt::format("targets are of {}, expected i32 or i64", to_string(target->dtype())));
  in.target.resize(static_cast<size_t>(target->elements()));
  load(*target, 0, target->elements(), in.target.data());
  if (weight != nullptr) {
    if (weight->rank() != 1 || weight->dim(0) != in.x->dim(1) || !is_float(weight->dtype()))
      return error(Code::kInvalid, fmt::format("weights are {}{}, expected [{}] floats", to_string(weight->dtype()),
                                               to_string(weight->shape()), in.x->dim(1)));
    in.weight.resize(static_cast<size_t>(weight->elements()));
    load(*weight, 0, weight->elements(), in.weight.data());
  }
  return in;
}

// Output 0 from log probabilities [N, C, ...] of any float type.
Result<> make_loss(RunContext& c, const LossInputs& in, const Tensor& log_probabilities) {
  BOLIDE_TRY(const size_t reduction, choice_of(c, "reduction", "mean", {"mean", "sum", "none"}));
  std::optional<int64_t> ignored;
  if (c.attributes().has("ignore_index")) {
    BOLIDE_TRY(ignored, c.attributes().integer("ignore_index", 0));
  }
  const Lanes lanes = lanes_of(in.x->shape(), 1);
  std::vector<double> losses(in.target.size());
  double sum = 0, weights = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const int64_t label = in.target[i];
    if (ignored && label == *ignored) continue;
    if (label < 0 || label >= lanes.n)
      return error(Code::kInvalid, fmt::format("target [{}] is {}, expected one of {} classes", i, label, lanes.n));
    const auto at = static_cast<int64_t>(i);
    double log_probability = 0;
    load(log_probabilities, (at / lanes.inner * lanes.n + label) * lanes.inner + at % lanes.inner, 1, &log_probability);
    const double weight = in.weight.empty() ? 1 : in.weight[static_cast<size_t>(label)];
    losses[i] = -log_probability * weight;
    sum += losses[i];
    weights += weight;
  }
  if (reduction == 2) {
    BOLIDE_TRY(Tensor * out, c.make(0, in.x->dtype(), in.shape));
    store(*out, 0, out->elements(), losses.data());
    return {};
  }
  if (reduction == 0) sum /= weights;
  BOLIDE_TRY(Tensor * out, c.make(0, in.x->dtype(), {}));
  store(*out, 0, 1, &sum);
  return {};
}

Result<> run_negative_log_likelihood(RunContext& c) {
  BOLIDE_TRY(const LossInputs in, loss_inputs(c));
  return make_loss(c, in, *in.x);
}

Result<> run_softmax_cross_entropy(RunContext& c) {
  BOLIDE_TRY(const LossInputs in, loss_inputs(c));
  const DType wide = in.x->dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  BOLIDE_TRY(const Tensor scores, cast(*in.x, wide, c.pool()));
  BOLIDE_TRY(Tensor log_probabilities, c.scratch(wide, scores.shape()));
  softmax(scores, log_probabilities, lanes_of(scores.shape(), 1), SoftmaxKind::kLog, c.workers());
  BOLIDE_TRY(make_loss(c, in, log_probabilities));
  BOLIDE_TRY(Tensor second, cast(log_probabilities, in.x->dtype(), c.pool()));
  c.set(1, std::move(second));
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "NegativeLogLikelihoodLoss", .since = 12, .run = run_negative_log_likelihood},
    {.domain = "", .name = "SoftmaxCrossEntropyLoss", .since = 12, .run = run_softmax_cross_entropy},
};

}  // namespace

std::span<const OpDef> loss_ops() { return kRows; }

}  // namespace bolide
