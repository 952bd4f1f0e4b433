// fuse_quantised: DequantizeLinear, a float op and QuantizeLinear become one op on codes (ops/quantised.h): Conv, Gemm
// and MatMul with their bias and the Relu or Clip that follows; Add, into the convolution before it where that has no
// other reader; pools; ops that move elements; functions of one value as tables. QLinear ops become the same.
// Convolutions and what lies between them have their channels last; transposes that nothing needs are not made.
//
// Codes differ from those of float arithmetic, which rounds its sums, by one step at most, where a value lies that
// close to the middle between two codes.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "passes/general/code_tables.h"
#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr int64_t kFewChannels = 16;  // QConv takes so few with channels first

// 8-bit codes and how they are meant.
struct Codes {
  ValueId q = kNoValue, scale = kNoValue, zero = kNoValue;
  bool has() const { return q != kNoValue; }
  bool means_like(const Codes& other) const { return scale == other.scale && zero == other.zero; }
};

// A product of codes as either form has it.
struct Product {
  Codes x, w, y;
  ValueId bias = kNoValue;
  NodeId place = -1;       // where the op of codes may run
  ValueId out = kNoValue;  // what it makes
  int64_t minimum = INT64_MIN, maximum = INT64_MAX;
};

bool is_plain(const Rewriter& r, NodeId id) {
  for (const auto& [name, value] : r.attributes(id).all())
    if (name != "axis") return false;
  return true;
}

bool is_byte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }

int64_t code_of(const Tensor& t, size_t i) { return t.dtype() == DType::kI8 ? t.as<int8_t>()[i] : t.as<uint8_t>()[i]; }

class Fuser {
 public:
  explicit Fuser(Rewriter& r) : r_(r) {}

  int run() {
    for (const NodeId id : r_.order()) {
      if (!r_.alive(id)) continue;
      const bool done =
          looked_up(id) || convolution(id) || product(id) || sum(id) || max_pool(id) || average_pool(id) || moved(id);
      count_ += done ? 1 : 0;
    }
    return count_;
  }

 private:
  bool is_scale(ValueId value) const {
    const Tensor* t = value == kNoValue ? nullptr : r_.constant(value);
    return t != nullptr && t->dtype() == DType::kF32 && t->elements() == 1 && std::isnormal(t->as<float>()[0]) &&
           t->as<float>()[0] > 0;
  }
  bool is_zero_point(ValueId value) const {
    const Tensor* t = value == kNoValue ? nullptr : r_.constant(value);
    return t != nullptr && is_byte(t->dtype()) && t->elements() == 1;
  }
  ValueId unsigned_zero() {
    if (unsigned_zero_ == kNoValue)
      unsigned_zero_ = r_.add_constant("zero_point", Tensor::scalar(DType::kU8, uint8_t{0}));
    return unsigned_zero_;
  }
  // The codes and their one scale that `value` is made of.
  Codes dequantised(ValueId value) const {
    const NodeId id = r_.made_by(value, "DequantizeLinear");
    if (id < 0 || !is_plain(r_, id)) return {};
    return codes(r_.in(id, 0), r_.in(id, 1), r_.in(id, 2));
  }
  Codes codes(ValueId q, ValueId scale, ValueId zero) const {
    if (!is_scale(scale) || !is_zero_point(zero)) return {};
    const DType dtype = r_.facts(q).dtype;
    if (dtype != DType::kNone && dtype != r_.constant(zero)->dtype()) return {};
    return {q, scale, zero};
  }
  // The scale and zero point of the node, which quantises x with one of each.
  Codes quantised(NodeId id, ValueId x) {
    if (id < 0 || !r_.is(id, "QuantizeLinear") || !is_plain(r_, id) || r_.in(id, 0) != x) return {};
    const ValueId zero = r_.in(id, 2) == kNoValue ? unsigned_zero() : r_.in(id, 2);
    if (!is_scale(r_.in(id, 1)) || !is_zero_point(zero)) return {};
    return {r_.out(id), r_.in(id, 1), zero};
  }
  // Constant weights of `rank` dims (0: any of 2 or more) with scales along `axis` (negative: from the end).
  Codes weights(ValueId value, int rank, int axis) const {
    const NodeId id = r_.made_by(value, "DequantizeLinear");
    if (id < 0 || !is_plain(r_, id)) return {};
    const Tensor* w = r_.constant(r_.in(id, 0));
    if (w == nullptr || !is_byte(w->dtype()) || w->rank() < 2 || (rank != 0 && w->rank() != rank)) return {};
    const Tensor* scale = r_.constant(r_.in(id, 1));
    if (scale == nullptr || scale->dtype() != DType::kF32) return {};
    if (scale->elements() != 1) {
      int64_t along = r_.integer(id, "axis", 1);
      if (along < 0) along += w->rank();
      if (along != (axis < 0 ? axis + w->rank() : axis) || scale->rank() != 1) return {};
      if (scale->elements() != w->dim(static_cast<int>(along))) return {};
    }
    const ValueId zero = r_.in(id, 2);
    if (zero != kNoValue && r_.constant(zero) == nullptr) return {};
    if (zero == kNoValue && w->dtype() != DType::kI8) return {};
    return {r_.in(id, 0), r_.in(id, 1), zero};
  }
  // Whether all of w's zero points are where packed weights have theirs.
  bool is_centred(const Codes& w) const {
    if (w.zero == kNoValue) return true;
    const Tensor* zero = r_.constant(w.zero);
    if (zero == nullptr || !is_byte(zero->dtype())) return false;
    for (size_t i = 0; i < static_cast<size_t>(zero->elements()); ++i)
      if (code_of(*zero, i) != (zero->dtype() == DType::kU8 ? 128 : 0)) return false;
    return true;
  }
  // i32 codes of a bias whose scale is x's times w's. False: it is something else.
  bool bias_of(ValueId value, const Codes& x, const Codes& w, int64_t columns, ValueId* bias) const {
    *bias = kNoValue;
    if (value == kNoValue) return true;
    const NodeId id = r_.made_by(value, "DequantizeLinear");
    if (id < 0 || !is_plain(r_, id)) return false;
    const Tensor *q = r_.constant(r_.in(id, 0)), *scale = r_.constant(r_.in(id, 1));
    if (q == nullptr || q->dtype() != DType::kI32 || q->rank() != 1 || q->elements() != columns) return false;
    if (scale == nullptr || scale->dtype() != DType::kF32) return false;
    if (const ValueId zero = r_.in(id, 2); zero != kNoValue) {
      const Tensor* t = r_.constant(zero);
      if (t == nullptr || t->dtype() != DType::kI32) return false;
      for (const int32_t v : t->as<int32_t>())
        if (v != 0) return false;
    }
    const Tensor* w_scale = r_.constant(w.scale);
    const double x_scale = *r_.scalar(x.scale);
    if (scale->elements() != 1 && scale->elements() != columns) return false;
    if (w_scale->elements() != 1 && w_scale->elements() != columns) return false;
    for (size_t i = 0; i < static_cast<size_t>(columns); ++i) {
      const double expected = x_scale * static_cast<double>(w_scale->as<float>()[w_scale->elements() == 1 ? 0 : i]);
      if (!near(static_cast<double>(scale->as<float>()[scale->elements() == 1 ? 0 : i]), expected)) return false;
    }
    *bias = r_.in(id, 0);
    return true;
  }

  // What follows the value y of `p`: Relu or Clip, then QuantizeLinear. None of them: y is a result of f32.
  void finish(NodeId id, Product* p) {
    const ValueId y = r_.out(id);
    p->place = id, p->out = y;
    NodeId next = r_.only_user(y);
    double low = -INFINITY, high = INFINITY;
    ValueId value = y;
    if (bounds_of(next, value, &low, &high)) value = r_.out(next), next = r_.only_user(value);
    const Codes to = quantised(next, value);
    if (!to.has()) return;
    const double scale = *r_.scalar(to.scale), zero = static_cast<double>(code_of(*r_.constant(to.zero), 0));
    const bool is_signed = r_.constant(to.zero)->dtype() == DType::kI8;
    const double least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    const auto code = [&](double v) {
      const double q = std::nearbyint(static_cast<double>(static_cast<float>(v) / static_cast<float>(scale))) + zero;
      return static_cast<int64_t>(std::min(std::max(q, least), most));
    };
    if (low > -INFINITY) p->minimum = code(low);
    if (high < INFINITY) p->maximum = code(high);
    p->y = to, p->place = next, p->out = r_.out(next);
  }
  bool bounds_of(NodeId id, ValueId x, double* low, double* high) const {
    if (id < 0 || !r_.alive(id) || r_.node(id).in.empty() || r_.in(id, 0) != x) return false;
    if (r_.is(id, "Relu")) {
      *low = 0;
      return true;
    }
    if (!r_.is(id, "Clip")) return false;
    double least = -INFINITY, most = INFINITY;
    if (r_.op(id).version < 11) {
      if (r_.attributes(id).has("min")) least = static_cast<double>(r_.attributes(id).number("min", 0).value_or(0));
      if (r_.attributes(id).has("max")) most = static_cast<double>(r_.attributes(id).number("max", 0).value_or(0));
    } else {
      for (size_t i = 1; i < r_.node(id).in.size(); ++i) {
        if (r_.in(id, i) == kNoValue) continue;
        const auto bound = r_.scalar(r_.in(id, i));
        if (!bound || i > 2) return false;
        (i == 1 ? least : most) = *bound;
      }
    }
    if (!(least <= most)) return false;
    *low = least, *high = most;
    return true;
  }
  static void add_bounds(const Product& p, NamedAttributes* attributes) {
    if (p.minimum != INT64_MIN) attributes->emplace_back("minimum", p.minimum);
    if (p.maximum != INT64_MAX) attributes->emplace_back("maximum", p.maximum);
  }
  static std::vector<ValueId> inputs_of(const Product& p) {
    return {p.x.q, p.x.scale, p.x.zero, p.w.q, p.w.scale, p.w.zero, p.y.scale, p.y.zero, p.bias};
  }

  // The value with its channels last; made if there is none.
  ValueId channels_last(ValueId value, NodeId place) {
    if (const auto it = last_.find(value); it != last_.end()) return it->second;
    const int rank = r_.facts(value).rank();
    Numbers order = {0};
    for (int i = 2; i < rank; ++i) order.push_back(i);
    order.push_back(1);
    const ValueId made = r_.out(r_.emit(place, "", "Transpose", 13, {value}, {{"perm", order}}));
    last_.emplace(value, made);
    return made;
  }
  // Readers of `from` read what `made` makes with its channels last.
  void give(NodeId place, ValueId from, NodeId made, int rank) {
    Facts facts = r_.facts(from);
    if (facts.rank() == rank) {
      Numbers dims = {(*facts.dims)[0]};
      dims.insert(dims.end(), facts.dims->begin() + 2, facts.dims->end());
      dims.push_back((*facts.dims)[1]);
      r_.table().set(r_.out(made), {.dtype = facts.dtype, .dims = dims, .values = {}, .constant = nullptr});
    }
    Numbers order = {0, rank - 1};
    for (int i = 1; i + 1 < rank; ++i) order.push_back(i);
    const ValueId first = r_.out(r_.emit(place, "", "Transpose", 13, {r_.out(made)}, {{"perm", order}}));
    r_.table().set(first, std::move(facts));
    last_.emplace(first, r_.out(made));
    r_.replace(from, first);
  }

  bool convolution(NodeId id) {
    Product p;
    if (r_.is(id, "Conv")) {
      p.x = dequantised(r_.in(id, 0)), p.w = weights(r_.in(id, 1), 0, 0);
      if (!p.x.has() || !p.w.has()) return false;
      if (!bias_of(r_.in(id, 2), p.x, p.w, r_.constant(p.w.q)->dim(0), &p.bias)) return false;
      finish(id, &p);
    } else if (r_.is(id, "QLinearConv")) {
      p.x = codes(r_.in(id, 0), r_.in(id, 1), r_.in(id, 2));
      p.w = {r_.in(id, 3), r_.in(id, 4), r_.in(id, 5)};
      p.y = codes(r_.out(id), r_.in(id, 6), r_.in(id, 7));
      if (!p.x.has() || !p.y.has() || r_.constant(p.w.scale) == nullptr) return false;
      p.bias = r_.in(id, 8), p.place = id, p.out = r_.out(id);
      if (p.bias != kNoValue && r_.constant(p.bias) == nullptr) return false;
    } else {
      return false;
    }
    const Tensor* w = r_.constant(p.w.q);
    if (w == nullptr || w->rank() < 3 || !is_centred(p.w)) return false;
    const int64_t groups = r_.integer(id, "group", 1);
    if (groups < 1) return false;
    NamedAttributes attributes;
    for (const auto& [name, value] : r_.attributes(id).all()) attributes.emplace_back(name, value);
    add_bounds(p, &attributes);
    const bool few = groups == 1 && w->dim(1) < kFewChannels && w->rank() == 4 && !last_.contains(p.x.q);
    if (few)
      attributes.emplace_back("x_channels_first", int64_t{1});
    else if (r_.facts(p.x.q).rank() != w->rank() && !last_.contains(p.x.q))
      return false;
    else
      p.x.q = channels_last(p.x.q, p.place);
    const int rank = w->rank();
    const NodeId made = r_.emit(p.place, "bolide", "QConv", 1, inputs_of(p), std::move(attributes));
    give(p.place, p.out, made, rank);
    return true;
  }

  bool product(NodeId id) {
    Product p;
    bool transposed = false;
    if (r_.is(id, "MatMul")) {
      p.x = dequantised(r_.in(id, 0)), p.w = weights(r_.in(id, 1), 0, -1);
      if (!p.w.has()) p.w = dequantised(r_.in(id, 1));
      if (!p.x.has() || !p.w.has()) return false;
      finish(id, &p);
    } else if (r_.is(id, "Gemm")) {
      transposed = r_.integer(id, "transB", 0) != 0;
      const auto number = [&](std::string_view name) { return r_.attributes(id).number(name, 1).value_or(0); };
      if (r_.integer(id, "transA", 0) != 0 || number("alpha") != 1 || number("beta") != 1) return false;
      p.x = dequantised(r_.in(id, 0)), p.w = weights(r_.in(id, 1), 2, transposed ? 0 : 1);
      if (!p.x.has() || !p.w.has()) return false;
      if (!bias_of(r_.in(id, 2), p.x, p.w, r_.constant(p.w.q)->dim(transposed ? 0 : 1), &p.bias)) return false;
      finish(id, &p);
    } else if (r_.is(id, "QLinearMatMul") || r_.is(id, "QGemm", "com.microsoft")) {
      const bool gemm = r_.is(id, "QGemm", "com.microsoft");
      transposed = gemm && r_.integer(id, "transB", 0) != 0;
      if (gemm && (r_.integer(id, "transA", 0) != 0 || r_.attributes(id).number("alpha", 1).value_or(0) != 1))
        return false;
      p.x = codes(r_.in(id, 0), r_.in(id, 1), r_.in(id, 2));
      p.w = {r_.in(id, 3), r_.in(id, 4), r_.in(id, 5)};
      p.y = codes(r_.out(id), r_.in(id, gemm ? 7 : 6), r_.in(id, gemm ? 8 : 7));
      p.bias = gemm ? r_.in(id, 6) : kNoValue, p.place = id, p.out = r_.out(id);
      if (!p.x.has() || !p.y.has() || r_.constant(p.w.scale) == nullptr || r_.facts(p.w.q).rank() < 2) return false;
      if (p.bias != kNoValue && r_.constant(p.bias) == nullptr) return false;
    } else {
      return false;
    }
    if (r_.facts(p.x.q).dims && r_.facts(p.x.q).rank() < 2) return false;
    NamedAttributes attributes;
    if (transposed) attributes.emplace_back("transB", int64_t{1});
    add_bounds(p, &attributes);
    Facts facts = r_.facts(p.out);
    const NodeId made = r_.emit(p.place, "bolide", "QMatMul", 1, inputs_of(p), std::move(attributes));
    r_.table().set(r_.out(made), std::move(facts));
    r_.replace(p.out, r_.out(made));
    return true;
  }

  bool sum(NodeId id) {
    Product p;
    Codes b;
    if (r_.is(id, "Add") && r_.op(id).version >= 7) {
      p.x = dequantised(r_.in(id, 0)), b = dequantised(r_.in(id, 1));
      if (!p.x.has() || !b.has()) return false;
      finish(id, &p);
    } else if (r_.is(id, "QLinearAdd", "com.microsoft")) {
      p.x = codes(r_.in(id, 0), r_.in(id, 1), r_.in(id, 2)), b = codes(r_.in(id, 3), r_.in(id, 4), r_.in(id, 5));
      p.y = codes(r_.out(id), r_.in(id, 6), r_.in(id, 7));
      p.place = id, p.out = r_.out(id);
      if (!p.x.has() || !b.has()) return false;
    }
    if (!p.y.has()) return false;
    if (join(p, p.x, b) || join(p, b, p.x)) return true;
    // The one that may be repeated comes second; a sum with one number is a table.
    const auto single = [&](const Codes& one) {
      const Tensor* t = r_.constant(one.q);
      return t != nullptr && t->elements() == 1;
    };
    if (r_.is(id, "Add") && (single(p.x) || single(b))) return false;
    if (r_.facts(p.x.q).dims && r_.facts(b.q).dims &&
        (r_.facts(p.x.q).rank() < r_.facts(b.q).rank() || r_.constant(p.x.q) != nullptr))
      std::swap(p.x, b);
    // QLinearAdd's bounds are those of its codes.
    const Tensor& zero = *r_.constant(p.y.zero);
    const int64_t least = zero.dtype() == DType::kI8 ? -128 : 0;
    if ((p.minimum != INT64_MIN && p.minimum != least) || p.maximum != INT64_MAX) return false;
    if (zero.dtype() != r_.constant(p.x.zero)->dtype() || zero.dtype() != r_.constant(b.zero)->dtype()) return false;
    const auto x_last = last_.find(p.x.q), b_last = last_.find(b.q);
    const bool last = x_last != last_.end() && b_last != last_.end() && r_.facts(p.x.q).dims && r_.facts(b.q).dims &&
                      r_.facts(p.x.q).rank() == r_.facts(b.q).rank();
    if (!last && !r_.is(id, "Add")) return false;
    const int rank = r_.facts(p.x.q).rank();
    if (last) p.x.q = x_last->second, b.q = b_last->second;
    const NodeId made = r_.emit(p.place, "com.microsoft", "QLinearAdd", 1,
                                {p.x.q, p.x.scale, p.x.zero, b.q, b.scale, b.zero, p.y.scale, p.y.zero});
    if (last) {
      give(p.place, p.out, made, rank);
    } else {
      r_.table().set(r_.out(made), r_.facts(p.out));
      r_.replace(p.out, r_.out(made));
    }
    return true;
  }

  // The sum into the product that makes `term`, if nothing else reads that.
  bool join(const Product& p, const Codes& term, const Codes& other) {
    const auto last = last_.find(term.q);
    const ValueId made = last != last_.end() ? last->second : term.q;
    NodeId id = r_.made_by(made, "QConv", "bolide");
    const bool conv = id >= 0;
    if (!conv) id = r_.made_by(made, "QMatMul", "bolide");
    if (id < 0 || conv != (last != last_.end()) || r_.node(id).in.size() > 9 || r_.in(id, 6) == kNoValue) return false;
    if (r_.in(id, 6) != term.scale || r_.in(id, 7) != term.zero || r_.uses(made) != 1) return false;
    if (conv && (r_.only_user(term.q) < 0 || r_.made_by(term.q, "Transpose") < 0)) return false;
    if (term.q == other.q || !only_reader(term.q, p.place)) return false;
    const Facts &a = r_.facts(term.q), &b = r_.facts(other.q);
    if (!a.dims || !b.dims) return false;
    const Tensor* row = conv ? nullptr : r_.constant(other.q);
    const bool is_row = row != nullptr && row->rank() == 1 && row->dim(0) == a.dims->back();
    if (*a.dims != *b.dims && !is_row) return false;
    std::vector<ValueId> in = r_.node(id).in;
    in.resize(14, kNoValue);
    in[9] = conv ? channels_last(other.q, p.place) : other.q;
    in[10] = other.scale, in[11] = other.zero, in[12] = p.y.scale, in[13] = p.y.zero;
    NamedAttributes attributes;
    for (const auto& [name, value] : r_.attributes(id).all()) attributes.emplace_back(name, value);
    if (p.minimum != INT64_MIN) attributes.emplace_back("sum_minimum", p.minimum);
    if (p.maximum != INT64_MAX) attributes.emplace_back("sum_maximum", p.maximum);
    const int rank = a.rank();
    const NodeId joined =
        r_.emit(p.place, "bolide", conv ? "QConv" : "QMatMul", 1, std::move(in), std::move(attributes));
    if (conv) {
      give(p.place, p.out, joined, rank);
    } else {
      r_.table().set(r_.out(joined), r_.facts(p.out));
      r_.replace(p.out, r_.out(joined));
    }
    return true;
  }
  // Codes that only the sum at `place` reads, by one DequantizeLinear or itself.
  bool only_reader(ValueId q, NodeId place) const {
    NodeId user = r_.only_user(q);
    if (user < 0) return false;
    if (user == place) return true;
    if (!r_.is(user, "DequantizeLinear")) return false;
    return r_.only_user(r_.out(user)) >= 0;
  }

  bool max_pool(NodeId id) {
    if (!r_.is(id, "MaxPool") || r_.node(id).out.size() != 1 || r_.integer(id, "storage_order", 0) != 0) return false;
    Codes x = dequantised(r_.in(id, 0));
    NodeId place = id;
    ValueId from = r_.in(id, 0), out = r_.out(id);
    if (x.has()) {
      place = r_.only_user(out);
      const Codes y = quantised(place, out);
      if (!y.has() || !y.means_like(x)) return false;
      from = x.q, out = y.q;
    }
    const int rank = r_.facts(from).rank();
    if (rank < 3 || (!x.has() && (!is_byte(r_.facts(from).dtype) || !last_.contains(from)))) return false;
    NamedAttributes attributes;
    for (const auto& [name, value] : r_.attributes(id).all()) attributes.emplace_back(name, value);
    const NodeId made = r_.emit(place, "bolide", "QMaxPool", 1, {channels_last(from, place)}, std::move(attributes));
    give(place, out, made, rank);
    return true;
  }

  bool average_pool(NodeId id) {
    Product p;
    if (r_.is(id, "GlobalAveragePool")) {
      p.x = dequantised(r_.in(id, 0));
      if (!p.x.has()) return false;
      finish(id, &p);
      if (p.minimum != INT64_MIN || p.maximum != INT64_MAX) return false;
    } else if (r_.is(id, "QLinearGlobalAveragePool", "com.microsoft") && r_.integer(id, "channels_last", 0) == 0) {
      p.x = codes(r_.in(id, 0), r_.in(id, 1), r_.in(id, 2));
      p.y = codes(r_.out(id), r_.in(id, 3), r_.in(id, 4));
      p.place = id, p.out = r_.out(id);
      if (!p.x.has()) return false;
    }
    if (!p.y.has() || r_.constant(p.x.zero)->dtype() != r_.constant(p.y.zero)->dtype()) return false;
    const auto last = last_.find(p.x.q);
    const int rank = r_.facts(p.x.q).rank();
    if (last == last_.end() || rank < 3) return false;
    const NodeId made =
        r_.emit(p.place, "com.microsoft", "QLinearGlobalAveragePool", 1,
                {last->second, p.x.scale, p.x.zero, p.y.scale, p.y.zero}, {{"channels_last", int64_t{1}}});
    give(p.place, p.out, made, rank);
    return true;
  }

  // A function of one value of 8 bits is a table of 256 codes.
  bool looked_up(NodeId id) {
    if (!r_.is(id, "QuantizeLinear") || !quantised(id, r_.in(id, 0)).has()) return false;
    const auto found = table_of_codes(r_, id);
    if (!found) return false;
    const Facts facts = r_.facts(r_.out(id));
    const ValueId table = r_.add_constant("table", found->table);
    if (const auto last = last_.find(found->source); last != last_.end() && facts.dims) {
      give(id, r_.out(id), r_.emit(id, "bolide", "QLookUp", 1, {last->second, table}), facts.rank());
      return true;
    }
    const NodeId made = r_.emit(id, "bolide", "QLookUp", 1, {found->source, table});
    r_.table().set(r_.out(made), facts);
    r_.replace(r_.out(id), r_.out(made));
    return true;
  }

  // Ops that move elements move codes as well.
  bool moved(NodeId id) {
    bool moves = false;
    for (const std::string_view name : {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather",
                                        "DepthToSpace", "SpaceToDepth", "Expand"})
      moves = moves || r_.is(id, name);
    const bool joins = r_.is(id, "Concat");
    if ((!moves && !joins) || r_.node(id).out.size() != 1) return false;
    const NodeId place = r_.only_user(r_.out(id));
    const Codes y = quantised(place, r_.out(id));
    if (!y.has()) return false;
    std::vector<ValueId> in = r_.node(id).in;
    for (size_t i = 0; i < (joins ? in.size() : 1); ++i) {
      const Codes x = dequantised(in[i]);
      if (!x.has() || !x.means_like(y)) return false;
      in[i] = x.q;
    }
    const Facts facts = r_.facts(y.q);
    const NodeId made = r_.emit_like(place, r_.op(id), std::move(in));
    r_.table().set(r_.out(made), facts);
    r_.replace(y.q, r_.out(made));
    return true;
  }

  Rewriter& r_;
  std::unordered_map<ValueId, ValueId> last_;  // values that are there with their channels last, too
  ValueId unsigned_zero_ = kNoValue;
  int count_ = 0;
};

}  // namespace

Result<int> fuse_quantised(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) -> Result<int> { return Fuser(r).run(); });
}

}  // namespace bolide
