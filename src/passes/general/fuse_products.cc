// fuse_conv: Conv, the sum with another value of its shape, and an activation become FusedConv.
// fuse_gemm: MatMul of matrices and the sum with a bias become Gemm; Gemm and an activation FusedGemm.
#include <limits>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

struct Activation {
  std::string name;
  std::vector<float> parameters;
};

// The activation as fused ops name it, if `id` is one that they have and reads x.
std::optional<Activation> fused_activation(const Rewriter& r, NodeId id, ValueId x) {
  if (id < 0 || !r.alive(id) || r.node(id).in.empty() || r.in(id, 0) != x) return std::nullopt;
  if (r.node(id).out.size() != 1) return std::nullopt;
  const auto number = [&](std::string_view name, float otherwise) {
    return r.attributes(id).number(name, otherwise).value_or(otherwise);
  };
  for (const std::string_view name : {"Relu", "Sigmoid", "Tanh", "HardSwish"})
    if (r.is(id, name)) return Activation{std::string(name), {}};
  if (r.is(id, "LeakyRelu")) return Activation{"LeakyRelu", {number("alpha", 0.01f)}};
  if (r.is(id, "HardSigmoid")) return Activation{"HardSigmoid", {number("alpha", 0.2f), number("beta", 0.5f)}};
  if (r.is(id, "Swish") && number("alpha", 1) == 1) return Activation{"Silu", {}};
  if (r.is(id, "Clip")) {
    constexpr float kLarge = std::numeric_limits<float>::infinity();
    float low = -kLarge, high = kLarge;
    if (r.op(id).version < 11) {
      if (r.attributes(id).has("min")) low = number("min", low);
      if (r.attributes(id).has("max")) high = number("max", high);
    } else {
      for (size_t i = 1; i < r.node(id).in.size(); ++i) {
        if (r.in(id, i) == kNoValue) continue;
        const auto bound = r.scalar(r.in(id, i));
        if (!bound || i > 2) return std::nullopt;
        (i == 1 ? low : high) = static_cast<float>(*bound);
      }
    }
    if (!(low <= high)) return std::nullopt;
    return Activation{"Clip", {low, high}};
  }
  return std::nullopt;
}

Result<int> convolutions(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId conv : r.order()) {
    if (!r.is(conv, "Conv")) continue;
    ValueId y = r.out(conv), residual = kNoValue;
    NodeId last = r.only_user(y);
    if (r.is(last, "Add") && r.op(last).version >= 7 && r.node(last).in.size() == 2) {
      const ValueId other = r.in(last, 0) == y ? r.in(last, 1) : r.in(last, 0);
      const Facts &a = r.facts(y), &b = r.facts(other);
      if (other != y && a.dims && b.dims && *a.dims == *b.dims && a.dtype != DType::kNone) {
        residual = other;
        y = r.out(last);
      }
    }
    const NodeId before = residual != kNoValue ? last : conv;
    if (residual != kNoValue) last = r.only_user(y);
    const auto activation = fused_activation(r, last, y);
    if (!activation && residual == kNoValue) continue;
    const NodeId place = activation ? last : before;
    NamedAttributes attributes;
    for (const auto& [name, value] : r.attributes(conv).all()) attributes.emplace_back(name, value);
    if (activation) {
      attributes.emplace_back("activation", activation->name);
      if (!activation->parameters.empty()) attributes.emplace_back("activation_params", activation->parameters);
    }
    std::vector<ValueId> in = {r.in(conv, 0), r.in(conv, 1), r.in(conv, 2)};
    if (residual != kNoValue) in.push_back(residual);
    const NodeId made = r.emit(place, "com.microsoft", "FusedConv", 1, std::move(in), std::move(attributes));
    r.replace(r.out(place), r.out(made));
    ++rewrites;
  }
  return rewrites;
}

// [N], [1, N] or one element beside [M, N].
bool is_row(const Facts& bias, int64_t N) {
  if (!bias.dims || bias.rank() > 2) return false;
  for (int i = 0; i < bias.rank(); ++i)
    if (const int64_t dim = (*bias.dims)[static_cast<size_t>(i)]; dim != 1 && (i + 1 < bias.rank() || dim != N))
      return false;
  return true;
}

Result<int> matrices(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.is(id, "MatMul") || r.node(id).in.size() != 2) continue;
    const Facts &a = r.facts(r.in(id, 0)), &b = r.facts(r.in(id, 1));
    const NodeId sum = r.only_user(r.out(id));
    if (!r.is(sum, "Add") || r.op(sum).version < 7 || a.rank() != 2 || b.rank() != 2 || !is_float(a.dtype)) continue;
    const ValueId bias = r.in(sum, 0) == r.out(id) ? r.in(sum, 1) : r.in(sum, 0);
    if (bias == r.out(id) || !is_row(r.facts(bias), b.dims->back())) continue;
    const NodeId made = r.emit(sum, "", "Gemm", 13, {r.in(id, 0), r.in(id, 1), bias});
    r.replace(r.out(sum), r.out(made));
    ++rewrites;
  }
  return rewrites;
}

Result<int> gemms(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.is(id, "Gemm") || r.op(id).version < 7) continue;
    const NodeId last = r.only_user(r.out(id));
    const auto activation = fused_activation(r, last, r.out(id));
    if (!activation || activation->parameters.size() > 1 || !is_float(r.facts(r.out(id)).dtype)) continue;
    NamedAttributes attributes;
    for (const auto& [name, value] : r.attributes(id).all()) attributes.emplace_back(name, value);
    attributes.emplace_back("activation", activation->name);
    if (!activation->parameters.empty()) attributes.emplace_back("activation_alpha", activation->parameters[0]);
    const NodeId made = r.emit(last, "com.microsoft", "FusedGemm", 1, r.node(id).in, std::move(attributes));
    r.replace(r.out(last), r.out(made));
    ++rewrites;
  }
  return rewrites;
}

}  // namespace

Result<int> fuse_conv(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return convolutions(r); });
}

Result<int> fuse_gemm(Graph& graph, const PassContext& context) {
  BOLIDE_TRY(const int products, rewrite_all(graph, context, [](Rewriter& r) { return matrices(r); }));
  BOLIDE_TRY(const int activations, rewrite_all(graph, context, [](Rewriter& r) { return gemms(r); }));
  return products + activations;
}

}  // namespace bolide
