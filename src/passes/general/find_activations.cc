// find_activations: Gelu in its forms with erf and with tanh, Swish, HardSwish and HardSigmoid that exporters wrote as
// sums and products. Factors may come in any order.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

// A product: the values in it, and its constants multiplied.
struct Product {
  double constant = 1;
  std::vector<ValueId> values;
  // Takes one occurrence of the value out.
  bool take(ValueId value) {
    const auto at = std::find(values.begin(), values.end(), value);
    if (at == values.end()) return false;
    values.erase(at);
    return true;
  }
};

// Constants of one element count, those whose rank could change the product's are values.
Product product_of(const Rewriter& r, ValueId value, ValueId x) {
  Product to;
  for (const Leaf& leaf : leaves_of(r, value, "Mul")) {
    const auto number = r.scalar_beside(leaf.value, x);
    if (number && leaf.inverse)
      to.constant /= *number;
    else if (number)
      to.constant *= *number;
    else
      to.values.push_back(leaf.value);
  }
  return to;
}

// value = number + other: `other`; kNoValue if it is not.
ValueId plus(const Rewriter& r, ValueId value, double number, ValueId x) {
  const NodeId sum = r.made_by(value, "Add");
  if (sum < 0 || r.op(sum).version < 7 || r.node(sum).in.size() != 2) return kNoValue;
  for (const size_t i : {0, 1})
    if (const auto constant = r.scalar_beside(r.in(sum, i), x); constant && near(*constant, number))
      return r.in(sum, 1 - i);
  return kNoValue;
}

// value = x^3 * constant, as a power or as a product; the constant.
std::optional<double> cube(const Rewriter& r, ValueId value, ValueId x) {
  Product product = product_of(r, value, x);
  if (product.values.size() == 1) {
    const NodeId power = r.made_by(product.values[0], "Pow");
    if (power < 0 || r.in(power, 0) != x) return std::nullopt;
    const auto three = r.scalar_beside(r.in(power, 1), x);
    return three && *three == 3 ? std::optional(product.constant) : std::nullopt;
  }
  return product.take(x) && product.take(x) && product.take(x) && product.values.empty()
             ? std::optional(product.constant)
             : std::nullopt;
}

constexpr double kTanhScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kTanhCube = 0.044715;
constexpr double kClose = 1e-5;  // of constants that exporters wrote in f32, some rounded

bool close(double a, double b) { return std::abs(a - b) <= kClose * std::abs(b); }

// value = sqrt(2 / pi) (x + 0.044715 x^3)
bool is_tanh_argument(const Rewriter& r, ValueId value, ValueId x) {
  Product product = product_of(r, value, x);
  if (!close(product.constant, kTanhScale)) return false;
  if (product.values.size() == 1) {
    const NodeId sum = r.made_by(product.values[0], "Add");
    if (sum < 0 || r.op(sum).version < 7) return false;
    for (const size_t i : {0, 1}) {
      if (r.in(sum, i) != x) continue;
      const auto factor = cube(r, r.in(sum, 1 - i), x);
      if (factor && close(*factor, kTanhCube)) return true;
    }
    return false;
  }
  if (product.values.size() != 2 || !product.take(x)) return false;  // x (1 + 0.044715 x^2)
  const ValueId square = plus(r, product.values[0], 1, x);
  if (square == kNoValue) return false;
  Product inner = product_of(r, square, x);
  if (!close(inner.constant, kTanhCube)) return false;
  if (inner.take(x)) return inner.take(x) && inner.values.empty();
  const NodeId power = inner.values.size() == 1 ? r.made_by(inner.values[0], "Pow") : -1;
  const auto two = power >= 0 && r.in(power, 0) == x ? r.scalar_beside(r.in(power, 1), x) : std::nullopt;
  return two && *two == 2;
}

struct Found {
  std::string_view name;
  int64_t version = 1;
  NamedAttributes attributes;
};

std::optional<Found> gelu_of(const Rewriter& r, double constant, ValueId other, ValueId x) {
  if (!near(constant, 0.5)) return std::nullopt;
  const ValueId inner = plus(r, other, 1, x);
  if (const NodeId erf = r.made_by(inner, "Erf"); erf >= 0) {
    Product argument = product_of(r, r.in(erf, 0), x);
    if (argument.take(x) && argument.values.empty() && close(argument.constant, 1 / std::numbers::sqrt2))
      return Found{"Gelu", 20, {}};
  }
  if (const NodeId tanh = r.made_by(inner, "Tanh"); tanh >= 0 && is_tanh_argument(r, r.in(tanh, 0), x))
    return Found{"Gelu", 20, {{"approximate", std::string("tanh")}}};
  return std::nullopt;
}

// clip(x + 3, 0, 6)
bool is_relu6_of(const Rewriter& r, ValueId value, ValueId x) {
  const NodeId clip = r.made_by(value, "Clip");
  if (clip < 0 || plus(r, r.in(clip, 0), 3, x) != x) return false;
  if (r.op(clip).version < 11)
    return r.attributes(clip).number("min", -1).value_or(-1) == 0 &&
           r.attributes(clip).number("max", 0).value_or(0) == 6;
  const auto low = r.in(clip, 1) == kNoValue ? std::nullopt : r.scalar(r.in(clip, 1));
  const auto high = r.in(clip, 2) == kNoValue ? std::nullopt : r.scalar(r.in(clip, 2));
  return low && high && *low == 0 && *high == 6;
}

std::optional<Found> activation_of(const Rewriter& r, double constant, ValueId other, ValueId x) {
  if (auto gelu = gelu_of(r, constant, other, x)) return gelu;
  if (const NodeId sigmoid = r.made_by(other, "Sigmoid"); sigmoid >= 0 && constant == 1) {
    Product argument = product_of(r, r.in(sigmoid, 0), x);
    if (!argument.take(x) || !argument.values.empty()) return std::nullopt;
    return Found{"Swish", 24, {{"alpha", static_cast<float>(argument.constant)}}};
  }
  if (const NodeId hard = r.made_by(other, "HardSigmoid"); hard >= 0 && constant == 1 && r.in(hard, 0) == x) {
    const auto alpha = r.attributes(hard).number("alpha", 0.2f), beta = r.attributes(hard).number("beta", 0.5f);
    if (alpha && beta && close(static_cast<double>(*alpha), 1.0 / 6) && *beta == 0.5f)
      return Found{"HardSwish", 14, {}};
  }
  if (close(constant, 1.0 / 6) && is_relu6_of(r, other, x)) return Found{"HardSwish", 14, {}};
  return std::nullopt;
}

Result<int> activations(Rewriter& r) {
  int rewrites = 0;
  // Backwards: of the nodes of a product only the last is tried as the whole.
  for (auto it = r.order().rbegin(); it != r.order().rend(); ++it) {
    const NodeId id = *it;
    if (!r.is(id, "Mul") && !r.is(id, "Div")) continue;
    if (r.op(id).version < 7 || !is_float(r.facts(r.out(id)).dtype)) continue;
    std::vector<Leaf> leaves = leaves_of(r, r.out(id), "Mul");
    const size_t flat = leaves.size();
    for (const size_t i : {0, 1})
      if (r.is(id, "Mul")) leaves.push_back({r.in(id, i), false});  // which may be products themselves
    for (size_t i = 0; i < leaves.size(); ++i) {
      const ValueId x = leaves[i].value;
      if (leaves[i].inverse || r.constant(x) != nullptr) continue;
      Product product = product_of(r, r.out(id), x);
      if (i >= flat) product = {1, r.node(id).in};
      if (product.values.size() != 2 || !product.take(x)) continue;
      const auto found = activation_of(r, product.constant, product.values[0], x);
      if (!found) continue;
      const NodeId made = r.emit(id, "", found->name, found->version, {x}, found->attributes);
      r.replace(r.out(id), r.out(made));
      ++rewrites;
      break;
    }
  }
  return rewrites;
}

// f(x + b) with a bias b of the last axis: BiasGelu, and FastGelu of the form with tanh.
Result<int> biased(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.is(id, "Gelu")) continue;
    const NodeId sum = r.made_by(r.in(id, 0), "Add");
    if (sum < 0 || r.op(sum).version < 7 || r.only_user(r.out(sum)) != id) continue;
    const bool tanh = r.attributes(id).text("approximate", "none").value_or("none") == "tanh";
    for (const size_t i : {0, 1}) {
      const ValueId x = r.in(sum, 1 - i), bias = r.in(sum, i);
      const Facts &wide = r.facts(x), &one = r.facts(bias);
      if (r.constant(bias) == nullptr || one.rank() != 1 || wide.rank() < 1 || wide.dims->back() != (*one.dims)[0])
        continue;
      const NodeId made = r.emit(id, "com.microsoft", tanh ? "FastGelu" : "BiasGelu", 1, {x, bias});
      r.replace(r.out(id), r.out(made));
      ++rewrites;
      break;
    }
  }
  return rewrites;
}

}  // namespace

Result<int> find_activations(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return activations(r); });
}
Result<int> fuse_bias_gelu(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return biased(r); });
}

}  // namespace bolide
