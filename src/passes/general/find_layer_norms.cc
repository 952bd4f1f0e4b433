// find_layer_norms: LayerNormalization and RMSNormalization that exporters wrote as means, powers and divisions.
// fuse_skip_layer_norm: the sum before a LayerNormalization goes into it, with a bias where there is one.
#include <algorithm>
#include <cmath>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

struct Mean {
  ValueId of = kNoValue;
  int64_t axis = 0;  // the first of the last axes that it is over
};

// ReduceMean over the last axes, which stay as ones.
std::optional<Mean> mean_of(const Rewriter& r, ValueId value) {
  const NodeId id = r.made_by(value, "ReduceMean");
  if (id < 0 || r.integer(id, "keepdims", 1) != 1) return std::nullopt;
  const ValueId x = r.in(id, 0);
  Numbers axes = r.integers(id, "axes");
  if (r.node(id).in.size() > 1 && r.in(id, 1) != kNoValue) {
    const Facts& given = r.facts(r.in(id, 1));
    if (given.constant == nullptr || !given.values) return std::nullopt;
    axes = *given.values;
  }
  const int rank = r.facts(x).rank();
  if (axes.empty() || rank < 1) return std::nullopt;
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[axes.size() - 1 - i] != rank - 1 - static_cast<int64_t>(i)) return std::nullopt;
  return Mean{x, axes[0]};
}

// value = x * x or x^2: x.
ValueId root_of(const Rewriter& r, ValueId value) {
  if (const NodeId power = r.made_by(value, "Pow"); power >= 0) {
    const auto two = r.scalar_beside(r.in(power, 1), r.in(power, 0));
    return two && *two == 2 ? r.in(power, 0) : kNoValue;
  }
  const NodeId product = r.made_by(value, "Mul");
  return product >= 0 && r.in(product, 0) == r.in(product, 1) ? r.in(product, 0) : kNoValue;
}

// value = variance + epsilon under a root: both.
struct Spread {
  ValueId variance = kNoValue;
  double epsilon = 0;
};
std::optional<Spread> under_root(const Rewriter& r, ValueId value) {
  const NodeId sum = r.made_by(value, "Add");
  if (sum < 0 || r.op(sum).version < 7) return std::nullopt;
  for (const size_t i : {0, 1})
    if (const auto epsilon = r.scalar_beside(r.in(sum, i), r.in(sum, 1 - i)); epsilon && *epsilon >= 0)
      return Spread{r.in(sum, 1 - i), *epsilon};
  return std::nullopt;
}
// value = 1 / sqrt(variance + epsilon)
std::optional<Spread> inverse_root(const Rewriter& r, ValueId value) {
  if (const NodeId inverse = r.made_by(value, "Reciprocal"); inverse >= 0)
    if (const NodeId root = r.made_by(r.in(inverse, 0), "Sqrt"); root >= 0) return under_root(r, r.in(root, 0));
  if (const NodeId over = r.made_by(value, "Div"); over >= 0) {
    const auto one = r.scalar_beside(r.in(over, 0), r.in(over, 1));
    if (const NodeId root = r.made_by(r.in(over, 1), "Sqrt"); root >= 0 && one && *one == 1)
      return under_root(r, r.in(root, 0));
  }
  if (const NodeId power = r.made_by(value, "Pow"); power >= 0) {
    const auto exponent = r.scalar_beside(r.in(power, 1), r.in(power, 0));
    if (exponent && *exponent == -0.5) return under_root(r, r.in(power, 0));
  }
  return std::nullopt;
}

// id = x / sqrt(s), or x times its inverse: x and s.
std::optional<std::pair<ValueId, Spread>> scaled(const Rewriter& r, NodeId id) {
  if (r.is(id, "Div")) {
    const NodeId root = r.made_by(r.in(id, 1), "Sqrt");
    const auto spread = root < 0 ? std::nullopt : under_root(r, r.in(root, 0));
    if (spread) return std::pair{r.in(id, 0), *spread};
  }
  for (const size_t i : {0, 1})
    if (r.is(id, "Mul"))
      if (const auto spread = inverse_root(r, r.in(id, i))) return std::pair{r.in(id, 1 - i), *spread};
  return std::nullopt;
}

// The other operand of a sum or product that alone reads `value`, if it has the dims that are normalised.
ValueId parameter(const Rewriter& r, ValueId value, std::string_view op, const Numbers& dims, NodeId& user) {
  user = r.only_user(value);
  if (!r.is(user, op) || r.op(user).version < 7 || r.node(user).in.size() != 2) return kNoValue;
  const ValueId other = r.in(user, 0) == value ? r.in(user, 1) : r.in(user, 0);
  const Facts& known = r.facts(other);
  if (other == value || !known.dims || *known.dims != dims || r.constant(other) == nullptr) return kNoValue;
  return other;
}

std::optional<Tensor> ones(DType dtype, const Numbers& dims) {
  auto made = Tensor::make(dtype, Shape(std::span<const int64_t>(dims)));
  if (!made || dtype != DType::kF32 || made->elements() > (1 << 20)) return std::nullopt;
  for (float& one : made->mutate<float>()) one = 1;
  return *std::move(made);
}

Result<int> norms(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.alive(id)) continue;
    const auto found = scaled(r, id);
    if (!found || !is_float(r.facts(r.out(id)).dtype)) continue;
    const auto& [y, spread] = *found;
    const auto variance = mean_of(r, spread.variance);
    if (!variance || root_of(r, variance->of) == kNoValue) continue;
    // RMS: the mean of the squares of what is scaled. Layer: that is x - mean(x), in both places.
    const ValueId squared = root_of(r, variance->of);
    ValueId x = y;
    bool centred = false;
    const NodeId difference = r.made_by(y, "Sub"), other = r.made_by(squared, "Sub");
    if (difference >= 0 && other >= 0) {
      const auto mean = mean_of(r, r.in(difference, 1)), again = mean_of(r, r.in(other, 1));
      const ValueId from = r.in(difference, 0);
      if (mean && again && mean->of == from && again->of == from && r.in(other, 0) == from &&
          mean->axis == variance->axis && again->axis == variance->axis)
        x = from, centred = true;
    }
    if (!centred && squared != y) continue;
    const Facts& facts = r.facts(x);
    if (!facts.dims || facts.dtype != r.facts(r.out(id)).dtype) continue;
    Numbers dims(facts.dims->begin() + variance->axis, facts.dims->end());
    if (!std::all_of(dims.begin(), dims.end(), is_number)) continue;
    NodeId last = id, user = -1;
    ValueId scale = parameter(r, r.out(id), "Mul", dims, user), bias = kNoValue;
    if (scale != kNoValue) {
      last = user;
    } else {
      auto one = ones(facts.dtype, dims);
      if (!one) continue;
      scale = r.add_constant(r.node(id).name + ".scale", *std::move(one));
    }
    if (centred) {
      bias = parameter(r, r.out(last), "Add", dims, user);
      if (bias != kNoValue) last = user;
    }
    std::vector<ValueId> in = {x, scale};
    if (bias != kNoValue) in.push_back(bias);
    const NodeId made =
        r.emit(last, "", centred ? "LayerNormalization" : "RMSNormalization", centred ? 17 : 23, std::move(in),
               {{"axis", variance->axis}, {"epsilon", static_cast<float>(spread.epsilon)}});
    r.replace(r.out(last), r.out(made));
    ++rewrites;
  }
  return rewrites;
}

Result<int> skips(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.is(id, "LayerNormalization") || r.node(id).out.size() != 1 || r.node(id).in.size() < 2) continue;
    const NodeId sum = r.made_by(r.in(id, 0), "Add");
    if (sum < 0 || r.op(sum).version < 7) continue;
    const Facts &a = r.facts(r.in(sum, 0)), &b = r.facts(r.in(sum, 1));
    const int rank = a.rank();
    const int64_t axis = r.integer(id, "axis", -1);
    if (rank != 3 || !b.dims || *a.dims != *b.dims || (axis != -1 && axis != rank - 1) || !is_float(a.dtype)) continue;
    const auto epsilon = r.attributes(id).number("epsilon", 1e-5f);
    if (!epsilon) continue;
    std::vector<ValueId> in = {r.in(sum, 0), r.in(sum, 1), r.in(id, 1), r.in(id, 2)};
    // The bias of the product that one of them is.
    for (const size_t i : {0, 1}) {
      const NodeId biased = r.made_by(in[i], "Add");
      if (biased < 0 || r.op(biased).version < 7 || r.only_user(in[i]) != sum) continue;
      for (const size_t k : {0, 1}) {
        const Facts& bias = r.facts(r.in(biased, k));
        if (in.size() > 4 || bias.constant == nullptr || bias.rank() != 1 || (*bias.dims)[0] != a.dims->back())
          continue;
        const Facts& product = r.facts(r.in(biased, 1 - k));
        if (!product.dims || *product.dims != *a.dims) continue;
        in.push_back(r.in(biased, k));
        in[i] = r.in(biased, 1 - k);
      }
      if (in.size() > 4) break;
    }
    const bool shared = r.only_user(r.out(sum)) != id;
    // It then runs where the sum did.
    if (shared && (r.constant(in[2]) == nullptr || (in[3] != kNoValue && r.constant(in[3]) == nullptr))) continue;
    const NodeId made = r.emit(shared ? sum : id, "com.microsoft", "SkipLayerNormalization", 1, std::move(in),
                               {{"epsilon", *epsilon}}, shared ? 4 : 1);
    r.replace(r.out(id), r.out(made));
    if (shared) {
      r.table().set(r.node(made).out[3], r.facts(r.out(sum)));
      r.replace(r.out(sum), r.node(made).out[3]);
    }
    ++rewrites;
  }
  return rewrites;
}

}  // namespace

Result<int> find_layer_norms(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return norms(r); });
}
Result<int> fuse_skip_layer_norm(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return skips(r); });
}

}  // namespace bolide
