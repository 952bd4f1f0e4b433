// bolide.Dense, which passes make of a product, its bias, a residual and an activation:
// y = f(x [..., K] W [K, N] + bias [N] + residual [..., N]). The reference.
#include <algorithm>
#include <cmath>

#include "ops/dense.h"
#include "ops/matrix.h"

namespace bolide {
namespace {

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

// kUnsupported: no such activation.
Result<double> activated(const std::string& name, double x) {
  if (name.empty()) return x;
  if (name == "Relu") return x < 0 ? 0 : x;
  if (name == "Sigmoid") return sigmoid(x);
  if (name == "Tanh") return std::tanh(x);
  if (name == "Silu") return x * sigmoid(x);
  if (name == "HardSwish") return x * std::min(std::max(x / 6 + 0.5, 0.0), 1.0);
  if (name == "Gelu") return 0.5 * x * std::erfc(-x * 0.7071067811865476);
  if (name == "GeluTanh") return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return error(Code::kUnsupported, fmt::format("activation '{:.40}'", name));
}

}  // namespace

Result<> run_dense(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* w, c.tensor(1));
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* residual, c.tensor_if(3));
  BOLIDE_TRY(const std::string name, c.attributes().text("activation", ""));
  BOLIDE_TRY(activated(name, 0));
  if (x->rank() < 1 || w->rank() != 2 || x->dim(-1) != w->dim(0) || x->dtype() != w->dtype())
    return error(Code::kInvalid, fmt::format("x is {}{}, the weights {}{}", to_string(x->dtype()),
                                             to_string(x->shape()), to_string(w->dtype()), to_string(w->shape())));
  const int64_t K = w->dim(0), N = w->dim(1);
  Shape shape = x->shape();
  shape[-1] = N;
  if (bias != nullptr) BOLIDE_TRY(expect_shape(*bias, {N}, "the bias"));
  if (residual != nullptr) BOLIDE_TRY(expect_shape(*residual, shape, "the residual"));
  return in_float(x->dtype(), "x", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_x, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor wide_w, widened<T>(c, *w));
    BOLIDE_TRY(const Tensor wide_b, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor wide_r, widened_if<T>(c, 3));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    const int64_t M = K == 0 || N == 0 ? y.elements() / std::max<int64_t>(N, 1) : x->elements() / K;
    multiply<T>(c.workers(), M, N, K, 1, [&](int64_t) {
      return Product<T>{{wide_x.as<T>().data(), K, 1}, {wide_w.as<T>().data(), N, 1}, y.mutate<T>().data(), N};
    });
    const auto out = y.mutate<T>();
    for (size_t i = 0; i < out.size(); ++i) {
      if (wide_b) out[i] += wide_b.as<T>()[i % static_cast<size_t>(N)];
      if (wide_r) out[i] += wide_r.as<T>()[i];
      if (!name.empty()) out[i] = static_cast<T>(*activated(name, static_cast<double>(out[i])));
    }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

}  // namespace bolide
