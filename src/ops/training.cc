// ai.onnx.preview.training: one step of an optimiser, of one tensor or of several at once. Computed as f64.
#include <array>
#include <cmath>
#include <vector>

#include "ops/attribute.h"
#include "ops/cast.h"
#include "ops/number.h"
#include "ops/ops.h"

namespace bolide {
namespace {

// Inputs: the rate R, the step T, then groups of n tensors each: all X, all G, all of the first state ...
struct Step {
  double rate = 0, step = 0;
  size_t tensors = 0, groups = 0;
};
Result<Step> step_of(const RunContext& c, size_t groups) {
  Step s;
  s.groups = groups;
  if (c.inputs() < 2 + groups || (c.inputs() - 2) % groups != 0)
    return error(Code::kInvalid, fmt::format("{} inputs, expected 2 and {} for each tensor", c.inputs(), groups));
  s.tensors = (c.inputs() - 2) / groups;
  BOLIDE_TRY(s.rate, c.number(0, 0));
  BOLIDE_TRY(s.step, c.number(1, 0));
  return s;
}

// f(values of one element, a group each): what it leaves there is the outputs, all X, then the states.
template <class F>
Result<> for_each_element(RunContext& c, const Step& s, F f) {
  for (size_t t = 0; t < s.tensors; ++t) {
    std::array<Tensor, 4> in;
    DType dtype = DType::kNone;
    for (size_t g = 0; g < s.groups; ++g) {
      BOLIDE_TRY(const Tensor* x, c.tensor(2 + g * s.tensors + t));
      if (g == 0) dtype = x->dtype();
      if (x->dtype() != dtype || (dtype != DType::kF32 && dtype != DType::kF64))
        return error(Code::kInvalid, fmt::format("input {} is of {}, expected f32 or f64, as the tensor's first",
                                                 2 + g * s.tensors + t, to_string(x->dtype())));
      BOLIDE_TRY(in[g], cast(*x, DType::kF64, c.pool()));
      if (in[g].shape() != in[0].shape())
        return error(Code::kInvalid, fmt::format("inputs for one tensor are {} and {}", to_string(in[0].shape()),
                                                 to_string(in[g].shape())));
    }
    std::array<Tensor, 4> out;
    for (size_t g = 0; g < s.groups; ++g) {
      BOLIDE_TRY(out[g], c.scratch(DType::kF64, in[0].shape()));
    }
    for (size_t i = 0; i < static_cast<size_t>(in[0].elements()); ++i) {
      std::array<double, 4> v{};
      for (size_t g = 0; g < s.groups; ++g) v[g] = in[g].as<double>()[i];
      f(v);
      for (size_t g = 0; g < s.groups; ++g) out[g].mutate<double>()[i] = v[g];
    }
    // Group 1, the gradients, is no output.
    for (size_t g = 0; g < s.groups; ++g) {
      if (g == 1) continue;
      BOLIDE_TRY(Tensor narrow, cast(out[g], dtype, c.pool()));
      c.set((g == 0 ? 0 : g - 1) * s.tensors + t, std::move(narrow));
    }
  }
  return {};
}

Result<double> real(const RunContext& c, std::string_view name, float otherwise) {
  BOLIDE_TRY(const float value, c.attributes().number(name, otherwise));
  return static_cast<double>(value);
}

Result<> run_adagrad(RunContext& c) {
  BOLIDE_TRY(const Step s, step_of(c, 3));
  BOLIDE_TRY(const double decay, real(c, "decay_factor", 0));
  BOLIDE_TRY(const double epsilon, real(c, "epsilon", 1e-6f));
  BOLIDE_TRY(const double norm, real(c, "norm_coefficient", 0));
  const double rate = s.rate / (1 + s.step * decay);
  return for_each_element(c, s, [&](std::array<double, 4>& v) {
    auto& [x, g, h, unused] = v;
    const double gradient = norm * x + g;
    h += gradient * gradient;
    x -= rate * gradient / (std::sqrt(h) + epsilon);
  });
}

Result<> run_adam(RunContext& c) {
  BOLIDE_TRY(const Step s, step_of(c, 4));
  BOLIDE_TRY(const double alpha, real(c, "alpha", 0.9f));
  BOLIDE_TRY(const double beta, real(c, "beta", 0.999f));
  BOLIDE_TRY(const double epsilon, real(c, "epsilon", 1e-6f));
  BOLIDE_TRY(const double norm, real(c, "norm_coefficient", 0));
  BOLIDE_TRY(const double norm_after, real(c, "norm_coefficient_post", 0));
  const double rate =
      s.step > 0 ? s.rate * std::sqrt(1 - std::pow(beta, s.step)) / (1 - std::pow(alpha, s.step)) : s.rate;
  return for_each_element(c, s, [&](std::array<double, 4>& w) {
    auto& [x, g, v, h] = w;
    const double gradient = norm * x + g;
    v = alpha * v + (1 - alpha) * gradient;
    h = beta * h + (1 - beta) * gradient * gradient;
    x = (1 - norm_after) * (x - rate * v / (std::sqrt(h) + epsilon));
  });
}

Result<> run_momentum(RunContext& c) {
  BOLIDE_TRY(const Step s, step_of(c, 3));
  BOLIDE_TRY(const double alpha, real(c, "alpha", 0));
  BOLIDE_TRY(const double beta, real(c, "beta", 0));
  BOLIDE_TRY(const double norm, real(c, "norm_coefficient", 0));
  BOLIDE_TRY(const size_t nesterov, choice_of(c, "mode", "standard", {"standard", "nesterov"}));
  const double share = s.step > 0 ? beta : 1;
  return for_each_element(c, s, [&](std::array<double, 4>& w) {
    auto& [x, g, v, unused] = w;
    const double gradient = norm * x + g;
    v = alpha * v + share * gradient;
    x -= s.rate * (nesterov == 1 ? gradient + alpha * v : v);
  });
}

constexpr OpDef kRows[] = {
    {.domain = "ai.onnx.preview.training", .name = "Adagrad", .run = run_adagrad},
    {.domain = "ai.onnx.preview.training", .name = "Adam", .run = run_adam},
    {.domain = "ai.onnx.preview.training", .name = "Momentum", .run = run_momentum},
};

}  // namespace

std::span<const OpDef> training_ops() { return kRows; }

}  // namespace bolide
