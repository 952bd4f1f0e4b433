// Element-wise ops, softmax and layer normalisation over f32 made ready: row functions of the processor's level.
#include <algorithm>
#include <limits>

#include "ops/dense.h"
#include "ops/elementwise.h"
#include "ops/prepared_rows.h"
#include "ops/softmax.h"

namespace bolide {
namespace {

using isa::RowFunctions;

// y = f(x + bias): the bias, input 1 of the last axis, is optional.
class RowUnaryOp final : public PreparedOp {
 public:
  RowUnaryOp(const RowFunctions& rows, int kind, std::array<float, 2> p, bool biased)
      : rows_(rows), kind_(kind), p_(p), biased_(biased) {}
  std::string_view kernel() const override { return "rows_f32"; }
  Result<bool> run(RunContext& c) const override {
    const Tensor *x = f32_at(c, 0), *bias = biased_ ? f32_at(c, 1) : nullptr;
    if (x == nullptr || (biased_ && c.has(1) && bias == nullptr)) return false;
    const int64_t n = bias == nullptr ? 0 : bias->elements();
    if (bias != nullptr && (x->rank() == 0 || n != x->dim(-1) || n == 0)) return false;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, x->shape()));
    const float* from = x->as<float>().data();
    float* to = y->mutate<float>().data();
    const auto f = rows_.unary[kind_];
    if (bias == nullptr) {
      for_each_range(x->elements(), c.workers(),
                     [&](int64_t begin, int64_t end) { f(from + begin, to + begin, end - begin, p_.data()); });
      return true;
    }
    const float* plus = bias->as<float>().data();
    for_row_ranges(c.workers(), x->elements() / n, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        rows_.binary[isa::kRowAdd](from + r * n, plus, to + r * n, n);
        f(to + r * n, to + r * n, n, p_.data());
      }
    });
    return true;
  }

 private:
  const RowFunctions& rows_;
  int kind_;
  std::array<float, 2> p_;
  bool biased_;
};

class RowBinaryOp final : public PreparedOp {
 public:
  RowBinaryOp(const RowFunctions& rows, int kind) : rows_(rows), kind_(kind) {}
  std::string_view kernel() const override { return "rows_f32"; }
  Result<bool> run(RunContext& c) const override {
    const Tensor *a = f32_at(c, 0), *b = f32_at(c, 1);
    if (a == nullptr || b == nullptr || c.inputs() != 2) return false;
    const auto shape = broadcast(a->shape(), b->shape());
    if (!shape) return false;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, *shape));
    const float *left = a->as<float>().data(), *right = b->as<float>().data();
    float* to = y->mutate<float>().data();
    for_each_piece(walk_of(*shape, {&a->shape(), &b->shape()}), c.workers(), [&](const Piece& p) {
      const float *l = left + p.in[0], *r = right + p.in[1];
      if (p.step[0] != 0 && p.step[1] != 0)
        rows_.binary[kind_](l, r, to + p.out, p.n);
      else if (p.step[0] != 0)
        rows_.binary_right[kind_](l, *r, to + p.out, p.n);
      else
        rows_.binary_left[kind_](*l, r, to + p.out, p.n);
    });
    return true;
  }

 private:
  const RowFunctions& rows_;
  int kind_;
};

class RowSoftmax final : public PreparedOp {
 public:
  RowSoftmax(const RowFunctions& rows, bool log, int64_t axis, bool flat)
      : f_(log ? rows.log_softmax : rows.softmax),
        columns_(log ? rows.log_softmax_columns : rows.softmax_columns),
        axis_(axis),
        flat_(flat) {}
  std::string_view kernel() const override { return "softmax_rows"; }
  Result<bool> run(RunContext& c) const override {
    const Tensor* x = f32_at(c, 0);
    if (x == nullptr || x->elements() == 0) return false;
    const auto axis = axis_of(axis_, x->rank());
    if (!axis) return false;
    Lanes lanes = lanes_of(x->shape(), *axis);
    if (flat_) lanes.n *= lanes.inner, lanes.inner = 1;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, x->shape()));
    const float* from = x->as<float>().data();
    float* to = y->mutate<float>().data();
    if (lanes.inner != 1) {
      // Blocks of columns whose elements stay in L1 and L2.
      constexpr int64_t kElements = 16 * 1024, kLeast = 64;
      const int64_t width = std::min(lanes.inner, std::max(kLeast, kElements / lanes.n / kLeast * kLeast));
      const int64_t blocks = (lanes.inner + width - 1) / width;
      for_row_ranges(c.workers(), lanes.outer * blocks, lanes.n * width, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % blocks * width, at = i / blocks * lanes.n * lanes.inner + first;
          columns_(from + at, to + at, lanes.n, lanes.inner, std::min(width, lanes.inner - first));
        }
      });
      return true;
    }
    for_row_ranges(c.workers(), lanes.outer, lanes.n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) f_(from + r * lanes.n, to + r * lanes.n, lanes.n);
    });
    return true;
  }

 private:
  void (*f_)(const float*, float*, int64_t);
  void (*columns_)(const float*, float*, int64_t, int64_t, int64_t);
  int64_t axis_;
  bool flat_;
};

// Which inputs and outputs a layer normalisation has, as RowNormalisation says; 0: none such.
struct NormPlaces {
  size_t skip = 0, scale = 1, bias = 0, skip_bias = 0, mean = 0, inverse = 0, sum = 0;
};

class RowNorm final : public PreparedOp {
 public:
  RowNorm(const RowFunctions& rows, NormPlaces at, int64_t axis, float epsilon, bool centred)
      : rows_(rows), at_(at), axis_(axis), epsilon_(epsilon), centred_(centred) {}
  std::string_view kernel() const override { return "norm_rows"; }
  Result<bool> run(RunContext& c) const override {
    const Tensor* x = f32_at(c, 0);
    if (x == nullptr || x->elements() == 0) return false;
    const auto axis = axis_of(axis_, x->rank());
    if (!axis) return false;
    Shape kept = x->shape();
    int64_t n = 1;
    for (int i = *axis; i < kept.rank; ++i) n *= kept[i], kept[i] = 1;
    const int64_t count = x->elements() / n;
    isa::NormRow all{};
    // Of one row's elements: scale and biases; of all: the skip.
    const auto read = [&](size_t input, int64_t elements, const float*& to) {
      if (input == 0 || !c.has(input)) return true;
      const Tensor* t = f32_at(c, input);
      if (t == nullptr || t->elements() != elements || t->rank() > x->rank()) return false;
      for (int i = 1; i <= t->rank(); ++i)
        if (t->dim(-i) != x->dim(-i) && t->dim(-i) != 1) return false;
      to = t->as<float>().data();
      return true;
    };
    if (!read(at_.scale, n, all.scale) || !read(at_.bias, n, all.bias) || !read(at_.skip_bias, n, all.skip_bias) ||
        !read(at_.skip, x->elements(), all.skip) || all.scale == nullptr)
      return false;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, x->shape()));
    float *to = y->mutate<float>().data(), *sums = to, *means = nullptr, *inverses = nullptr;
    const auto output = [&](size_t i, const Shape& shape, float*& data) -> Result<> {
      if (i == 0 || i >= c.outputs()) return {};
      BOLIDE_TRY(Tensor * t, c.make(i, DType::kF32, shape));
      data = t->mutate<float>().data();
      return {};
    };
    BOLIDE_TRY(output(at_.mean, kept, means));
    BOLIDE_TRY(output(at_.inverse, kept, inverses));
    BOLIDE_TRY(output(at_.sum, x->shape(), sums));
    const float* from = x->as<float>().data();
    const bool copies = sums != to && all.skip == nullptr && all.skip_bias == nullptr;
    for_row_ranges(c.workers(), count, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        isa::NormRow row = all;
        row.x = from + r * n, row.y = to + r * n, row.sum = sums + r * n;
        if (all.skip != nullptr) row.skip = all.skip + r * n;
        if (means != nullptr) row.mean = means + r;
        if (inverses != nullptr) row.inverse = inverses + r;
        row.count = n, row.epsilon = epsilon_, row.centred = centred_;
        if (copies) std::copy_n(row.x, n, row.sum);
        rows_.norm(row);
      }
    });
    return true;
  }

 private:
  const RowFunctions& rows_;
  NormPlaces at_;
  int64_t axis_;
  float epsilon_;
  bool centred_;
};

Prepared norm(const PrepareContext& c, NormPlaces at, float epsilon, bool centred, bool has_axis) {
  const RowFunctions* rows = row_functions(c.device.isa);
  if (rows == nullptr) return nullptr;
  int64_t axis = -1;
  if (has_axis) {
    BOLIDE_TRY(axis, c.attributes.integer("axis", -1));
  }
  BOLIDE_TRY(epsilon, c.attributes.number("epsilon", epsilon));
  return std::make_unique<RowNorm>(*rows, at, axis, epsilon, centred);
}

template <int kKind>
Prepared softmax_of(const PrepareContext& c) {
  const RowFunctions* rows = row_functions(c.device.isa);
  if (rows == nullptr) return nullptr;
  const bool flat = c.version < 13;
  BOLIDE_TRY(const int64_t axis, c.attributes.integer("axis", flat ? 1 : -1));
  return std::make_unique<RowSoftmax>(*rows, kKind != 0, axis, flat);
}

}  // namespace

Prepared prepare_unary(const PrepareContext& c, int kind, std::array<float, 2> p, bool biased) {
  const RowFunctions* rows = row_functions(c.device.isa);
  if (rows == nullptr) return nullptr;
  return std::make_unique<RowUnaryOp>(*rows, kind, p, biased);
}

Prepared prepare_binary(const PrepareContext& c, int kind) {
  const RowFunctions* rows = row_functions(c.device.isa);
  if (rows == nullptr) return nullptr;
  return std::make_unique<RowBinaryOp>(*rows, kind);
}

Prepared prepare_leaky_relu(const PrepareContext& c) {
  BOLIDE_TRY(const float alpha, c.attributes.number("alpha", 0.01f));
  return prepare_unary(c, isa::kRowLeakyRelu, {alpha}, false);
}
Prepared prepare_hard_sigmoid(const PrepareContext& c) {
  BOLIDE_TRY(const float alpha, c.attributes.number("alpha", 0.2f));
  BOLIDE_TRY(const float beta, c.attributes.number("beta", 0.5f));
  return prepare_unary(c, isa::kRowHardSigmoid, {alpha, beta}, false);
}
Prepared prepare_gelu(const PrepareContext& c) {
  const Attributes::Any* how = c.attributes.find("approximate");
  const auto* name = how == nullptr ? nullptr : std::get_if<std::string>(how);
  if (how != nullptr && (name == nullptr || (*name != "none" && *name != "tanh"))) return nullptr;  // the row says so
  return prepare_unary(c, name != nullptr && *name == "tanh" ? isa::kRowGeluTanh : isa::kRowGelu);
}
Prepared prepare_swish(const PrepareContext& c) {
  BOLIDE_TRY(const float alpha, c.attributes.number("alpha", 1));
  if (alpha != 1) return nullptr;
  return prepare_unary(c, isa::kRowSilu, {}, false);
}

Prepared prepare_clip(const PrepareContext& c) {
  std::array<float, 2> bounds = {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  for (size_t i = 0; i < 2; ++i) {
    const std::string_view name = i == 0 ? "min" : "max";
    if (c.version < 11) {
      if (!c.attributes.has(name)) continue;
      BOLIDE_TRY(bounds[i], c.attributes.number(name, 0));
    } else if (c.has(i + 1)) {
      const Tensor* bound = c.constant(i + 1);
      if (bound == nullptr || bound->dtype() != DType::kF32 || bound->elements() != 1) return nullptr;
      bounds[i] = bound->as<float>()[0];
    }
  }
  return prepare_unary(c, isa::kRowClip, bounds, false);
}

Prepared prepare_softmax(const PrepareContext& c) { return softmax_of<0>(c); }
Prepared prepare_log_softmax(const PrepareContext& c) { return softmax_of<1>(c); }

Prepared prepare_layer_norm(const PrepareContext& c) {
  return norm(c, {.bias = 2, .mean = 1, .inverse = 2}, 1e-5f, true, true);
}
Prepared prepare_rms_norm(const PrepareContext& c) { return norm(c, {.inverse = 1}, 1e-5f, false, true); }
Prepared prepare_skip_layer_norm(const PrepareContext& c) {
  return norm(c, {.skip = 1, .scale = 2, .bias = 3, .skip_bias = 4, .mean = 1, .inverse = 2, .sum = 3}, 1e-12f, true,
              false);
}
Prepared prepare_skip_rms_norm(const PrepareContext& c) {
  return norm(c, {.skip = 1, .scale = 2, .skip_bias = 3, .mean = 1, .inverse = 2, .sum = 3}, 1e-12f, false, false);
}

}  // namespace bolide
