// Attention and its com.microsoft kin made ready: projections packed, heads by panels, scores never whole in memory.
#include <algorithm>
#include <cmath>

#include "kernels/linear/packed_matrix.h"
#include "ops/attend_heads.h"
#include "ops/dense.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

// attn_mask of ai.onnx's Attention: bool, or added; keys beyond its last axis are masked. Null data and `fits` false:
// it is of another type or does not broadcast.
Result<ScoreBias> standard_bias(const RunContext& c, const Tensor* mask, const Shape& scores, bool& fits) {
  ScoreBias to;
  if (mask == nullptr) return to;
  const Shape& shape = mask->shape();
  const bool added = mask->dtype() == DType::kF32;
  fits = (added || mask->dtype() == DType::kBool) && shape.rank >= 1 && shape.rank <= 4 && shape[-1] <= scores[3];
  Shape wide{1, 1, 1, scores[3]};
  for (int i = 2; i <= shape.rank && fits; ++i) {
    wide[4 - i] = shape[-i];
    fits = shape[-i] == 1 || shape[-i] == scores[4 - i];
  }
  if (!fits) return to;
  const int64_t L = scores[3], own = shape[-1];
  to.made = *mask;
  if (!added || own != L) {
    BOLIDE_TRY(to.made, make_wide<float>(c, wide));
    float* row = to.made.mutate<float>().data();
    for (int64_t r = 0; r < wide[0] * wide[1] * wide[2]; ++r, row += L) {
      for (int64_t j = 0; j < own; ++j) {
        const auto at = static_cast<size_t>(r * own + j);
        row[j] = added ? mask->as<float>()[at] : mask->as<uint8_t>()[at] != 0 ? 0.0f : masked<float>();
      }
      std::fill(row + own, row + L, masked<float>());
    }
  }
  to.data = to.made.as<float>().data();
  to.row = wide[2] == 1 ? 0 : L;
  to.head = wide[1] == 1 ? 0 : wide[2] * L;
  to.batch = wide[0] == 1 ? 0 : wide[1] * wide[2] * L;
  return to;
}

// Output `output` becomes past [B, G, P, D] and the rows [B, G, L, D] behind it.
Result<Heads<const float>> grown(RunContext& c, const isa::RowFunctions& rows, size_t output, const Tensor* past,
                                 int64_t P, const Heads<const float>& now, const float* bias, const HeadsCase& a,
                                 int64_t L, int64_t D) {
  BOLIDE_TRY(Tensor * all, c.make(output, DType::kF32, {a.B, a.G, P + L, D}));
  float* const to = all->mutate<float>().data();
  append_rows(c.workers(), rows, past == nullptr ? nullptr : past->as<float>().data(), P, now, bias, a.B, a.G, L, D,
              to);
  return Heads<const float>::head_major(to, a.G, P + L, D);
}

class PreparedAttention final : public PreparedOp {
 public:
  struct Options {
    int64_t q_heads = 0, kv_heads = 0;
    int64_t left = -1, right = -1;  // of the window; 0 to the right: causal
    float softcap = 0;
  };
  PreparedAttention(const isa::PanelFunctions& panels, const isa::RowFunctions& rows, const Options& options)
      : panels_(panels), rows_(rows), options_(options) {}
  std::string_view kernel() const override { return "attention_panels"; }

  Result<bool> run(RunContext& c) const override {
    const Tensor *q = f32_at(c, 0), *k = f32_at(c, 1), *v = f32_at(c, 2);
    if (q == nullptr || k == nullptr || v == nullptr || k->rank() != q->rank() || v->rank() != q->rank()) return false;
    const Tensor *past_k = f32_at(c, 4), *past_v = f32_at(c, 5);
    if (c.has(4) != (past_k != nullptr) || c.has(5) != (past_v != nullptr)) return false;
    HeadsCase a;
    Shape shape = q->shape();
    const auto [q_heads, kv_heads, left, right, softcap] = options_;
    if (q->rank() == 3) {
      if (q_heads < 1 || kv_heads < 1 || q->dim(2) % q_heads != 0 || k->dim(2) % kv_heads != 0 ||
          v->dim(2) % kv_heads != 0)
        return false;
      a.B = q->dim(0), a.S = q->dim(1), a.L = k->dim(1), a.H = q_heads, a.G = kv_heads;
      a.D = q->dim(2) / a.H, a.Dv = v->dim(2) / a.G;
      if (k->dim(2) / a.G != a.D || v->dim(1) != a.L) return false;
      shape[2] = a.H * a.Dv;
    } else if (q->rank() == 4) {
      a.B = q->dim(0), a.H = q->dim(1), a.S = q->dim(2), a.D = q->dim(3);
      a.G = k->dim(1), a.L = k->dim(2), a.Dv = v->dim(3);
      if (k->dim(3) != a.D || v->dim(2) != a.L || v->dim(1) != a.G) return false;
      shape[3] = a.Dv;
    } else {
      return false;
    }
    if (k->dim(0) != a.B || v->dim(0) != a.B || a.G < 1 || a.H % a.G != 0 || a.L < 1 || a.D < 1) return false;
    const int64_t now = a.L;
    int64_t P = 0;
    if (past_k != nullptr || past_v != nullptr) {
      P = past_k != nullptr && past_k->rank() == 4 ? past_k->dim(2) : 0;
      if (past_k == nullptr || past_v == nullptr || past_k->shape() != Shape{a.B, a.G, P, a.D} ||
          past_v->shape() != Shape{a.B, a.G, P, a.Dv} || c.has(6))
        return false;
    }
    a.L = P + now;
    bool fits = true;
    BOLIDE_TRY(const ScoreBias bias,
               standard_bias(c, c.has(3) ? c.value(3)->tensor() : nullptr, {a.B, a.H, a.S, a.L}, fits));
    if (!fits || (c.has(3) && bias.data == nullptr)) return false;
    BOLIDE_TRY(a.scale, scale_of(c.attributes(), a.D, false));
    a.softcap = softcap;
    a.seen = set_window(a, P, left, right);
    if (c.has(6)) {
      BOLIDE_TRY(const auto valid, c.integers(6, {}, a.B));
      if (static_cast<int64_t>(valid.size()) != a.B) return false;
      for (const int64_t given : valid) {
        a.keys_of.push_back(std::clamp<int64_t>(given, 0, a.L));
        a.seen_of.push_back(set_window(a, a.keys_of.back() - a.S, left, right));
      }
    }
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
    float* const out = y->mutate<float>().data();
    const bool rows = q->rank() == 3;
    const auto view = [&]<class T>(T* data, int64_t heads, int64_t count, int64_t D) {
      return rows ? Heads<T>::row_major(data, heads, count, D) : Heads<T>::head_major(data, heads, count, D);
    };
    a.q = view(q->as<float>().data(), a.H, a.S, a.D);
    a.k = view(k->as<float>().data(), a.G, now, a.D);
    a.v = view(v->as<float>().data(), a.G, now, a.Dv);
    a.out = view(out, a.H, a.S, a.Dv);
    if (past_k != nullptr || c.outputs() > 1) {
      BOLIDE_TRY(a.k, grown(c, rows_, 1, past_k, P, a.k, nullptr, a, now, a.D));
      BOLIDE_TRY(a.v, grown(c, rows_, 2, past_v, P, a.v, nullptr, a, now, a.Dv));
    }
    BOLIDE_TRY(attend_all(c, panels_, a, bias));
    return true;
  }

 private:
  const isa::PanelFunctions& panels_;
  const isa::RowFunctions& rows_;
  Options options_;
};

// com.microsoft.Attention: all three projections are one product.
class PackedAttention final : public PreparedOp {
 public:
  PackedAttention(const isa::PanelFunctions& panels, const isa::RowFunctions& rows,
                  std::unique_ptr<PackedMatrix> matrix, std::vector<float> bias, int64_t heads, int64_t hidden,
                  int64_t value_hidden, bool causal)
      : panels_(panels),
        rows_(rows),
        matrix_(std::move(matrix)),
        bias_(std::move(bias)),
        heads_(heads),
        hidden_(hidden),
        value_hidden_(value_hidden),
        causal_(causal) {}
  std::string_view kernel() const override { return matrix_->kernel(); }
  size_t bytes() const override { return matrix_->bytes() + bias_.size() * sizeof(float); }
  bool holds(size_t input) const override { return input == 1 || (input == 2 && !bias_.empty()); }

  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    const int64_t I = matrix_->k(), N = matrix_->n();
    if (x->dtype() != DType::kF32 || x->rank() != 3 || x->dim(2) != I)
      return error(Code::kInvalid, fmt::format("input is {}{}, weights f32[{}, {}]", to_string(x->dtype()),
                                               to_string(x->shape()), I, N));
    HeadsCase a{.B = x->dim(0), .H = heads_, .G = heads_, .S = x->dim(1), .L = x->dim(1)};
    a.D = hidden_ / heads_, a.Dv = value_hidden_ / heads_;
    const Tensor* past = f32_at(c, 4);
    const int64_t P = past != nullptr && past->rank() == 5 ? past->dim(3) : 0;
    if (c.has(4) && (past == nullptr || past->shape() != Shape{2, a.B, a.H, P, a.D}))
      return error(Code::kInvalid, fmt::format("past is no f32[2, {}, {}, {}, {}]", a.B, a.H, P, a.D));
    a.L = P + a.S;
    BOLIDE_TRY(const ScoreBias bias, microsoft_bias(c, 3, 5, {a.B, a.H, a.S, a.L}));
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, {a.B, a.S, value_hidden_}));
    if (y->elements() == 0 && past == nullptr && c.outputs() < 2) return true;
    BOLIDE_TRY(Tensor all, make_wide<float>(c, {a.B * a.S, N}));
    float* const data = all.mutate<float>().data();
    {
      const int64_t rows = a.B * a.S;
      const auto bytes = static_cast<int64_t>(matrix_->workspace(rows, c.workers().threads()));
      BOLIDE_TRY(Tensor workspace, c.scratch(DType::kU8, {bytes}));
      matrix_->run({.rows = rows,
                    .x = x->as<float>().data(),
                    .x_stride = I,
                    .out = data,
                    .out_stride = N,
                    .bias = bias_.empty() ? nullptr : bias_.data()},
                   {workspace.mutable_data(), workspace.bytes()}, c.workers());
    }
    a.q = {data, a.S * N, a.D, N};
    a.k = {data + hidden_, a.S * N, a.D, N};
    a.v = {data + 2 * hidden_, a.S * N, a.Dv, N};
    if (past != nullptr || c.outputs() > 1) {
      BOLIDE_TRY(Tensor * present, c.make(1, DType::kF32, {2, a.B, a.H, a.L, a.D}));
      float* to = present->mutate<float>().data();
      const float* before = past == nullptr ? nullptr : past->as<float>().data();
      for (Heads<const float>* side : {&a.k, &a.v}) {
        append_rows(c.workers(), rows_, before, P, *side, nullptr, a.B, a.H, a.S, a.D, to);
        *side = Heads<const float>::head_major(to, a.H, a.L, a.D);
        to += a.B * a.H * a.L * a.D;
        if (before != nullptr) before += a.B * a.H * P * a.D;
      }
    }
    a.out = Heads<float>::row_major(y->mutate<float>().data(), a.H, a.S, a.Dv);
    BOLIDE_TRY(a.scale, scale_of(c.attributes(), a.D, true));
    if (causal_) a.seen = P + 1;
    BOLIDE_TRY(attend_all(c, panels_, a, bias));
    return true;
  }

 private:
  const isa::PanelFunctions& panels_;
  const isa::RowFunctions& rows_;
  std::unique_ptr<PackedMatrix> matrix_;
  std::vector<float> bias_;
  int64_t heads_, hidden_, value_hidden_;
  bool causal_;
};

// com.microsoft.MultiHeadAttention of query [B, S, H * D], key and value [B, L, H * D] or [B, H, L, D].
class PreparedMultiHead final : public PreparedOp {
 public:
  PreparedMultiHead(const isa::PanelFunctions& panels, const isa::RowFunctions& rows, int64_t heads, bool causal)
      : panels_(panels), rows_(rows), heads_(heads), causal_(causal) {}
  std::string_view kernel() const override { return "attention_panels"; }

  Result<bool> run(RunContext& c) const override {
    const Tensor *q = f32_at(c, 0), *k = f32_at(c, 1), *v = f32_at(c, 2), *bias = f32_at(c, 3);
    const Tensor *past_k = f32_at(c, 6), *past_v = f32_at(c, 7);
    if (q == nullptr || k == nullptr || v == nullptr || (c.has(3) && bias == nullptr) ||
        c.has(6) != (past_k != nullptr) || c.has(7) != (past_v != nullptr))
      return false;
    for (size_t i = 8; i < c.inputs(); ++i)
      if (c.has(i)) return false;
    const bool split = k->rank() == 4;
    if (q->rank() != 3 || (k->rank() != 3 && !split) || v->rank() != k->rank() || q->dim(2) % heads_ != 0 ||
        (!split && v->dim(2) % heads_ != 0))
      return false;
    HeadsCase a{.B = q->dim(0), .H = heads_, .G = heads_, .S = q->dim(1), .L = k->dim(split ? 2 : 1)};
    a.D = q->dim(2) / heads_, a.Dv = split ? v->dim(3) : v->dim(2) / heads_;
    const int64_t hidden = a.H * a.D, now = a.L;
    if (k->shape() != (split ? Shape{a.B, a.H, now, a.D} : Shape{a.B, now, hidden}) ||
        v->shape() != (split ? Shape{a.B, a.H, now, a.Dv} : Shape{a.B, now, a.H * a.Dv}) || now < 1 || a.D < 1)
      return false;
    if (bias != nullptr && bias->shape() != Shape{2 * hidden + a.H * a.Dv}) return false;
    int64_t P = 0;
    if (past_k != nullptr || past_v != nullptr) {
      P = past_k != nullptr && past_k->rank() == 4 ? past_k->dim(2) : 0;
      if (past_k == nullptr || past_v == nullptr || past_k->shape() != Shape{a.B, a.H, P, a.D} ||
          past_v->shape() != Shape{a.B, a.H, P, a.Dv})
        return false;
    }
    a.L = P + now;
    BOLIDE_TRY(const ScoreBias added, microsoft_bias(c, 4, 5, {a.B, a.H, a.S, a.L}));
    const bool keeps = past_k != nullptr || c.outputs() > 1;
    const float* const plus = bias == nullptr ? nullptr : bias->as<float>().data();
    Tensor sides[] = {*q, *k, *v};
    for (int64_t i = 0; i < 3 && plus != nullptr; ++i) {
      if (i > 0 && (split || keeps)) break;
      Tensor& side = sides[i];
      BOLIDE_TRY(Tensor sum, make_wide<float>(c, side.shape()));
      const float* from = side.as<float>().data();
      float* to = sum.mutate<float>().data();
      const int64_t n = side.dim(2);
      for_row_ranges(c.workers(), side.dim(0) * side.dim(1), n, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          rows_.binary[isa::kRowAdd](from + r * n, plus + i * hidden, to + r * n, n);
      });
      side = std::move(sum);
    }
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, {a.B, a.S, a.H * a.Dv}));
    a.out = Heads<float>::row_major(y->mutate<float>().data(), a.H, a.S, a.Dv);
    a.q = Heads<const float>::row_major(sides[0].as<float>().data(), a.H, a.S, a.D);
    const auto view = [&](const Tensor& t, int64_t D) {
      const float* data = t.as<float>().data();
      return split ? Heads<const float>::head_major(data, a.H, now, D)
                   : Heads<const float>::row_major(data, a.H, now, D);
    };
    a.k = view(sides[1], a.D), a.v = view(sides[2], a.Dv);
    if (keeps) {
      const float* const own = split ? nullptr : plus;
      BOLIDE_TRY(a.k, grown(c, rows_, 1, past_k, P, a.k, own == nullptr ? nullptr : own + hidden, a, now, a.D));
      BOLIDE_TRY(a.v, grown(c, rows_, 2, past_v, P, a.v, own == nullptr ? nullptr : own + 2 * hidden, a, now, a.Dv));
    }
    BOLIDE_TRY(a.scale, scale_of(c.attributes(), a.D, true));
    if (causal_) a.seen = P + 1;
    BOLIDE_TRY(attend_all(c, panels_, a, added));
    return true;
  }

 private:
  const isa::PanelFunctions& panels_;
  const isa::RowFunctions& rows_;
  int64_t heads_;
  bool causal_;
};

}  // namespace

Prepared prepare_attention(const PrepareContext& c) {
  const isa::PanelFunctions* panels = panel_functions(c.device.isa);
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  const Attributes& a = c.attributes;
  if (panels == nullptr || rows == nullptr || c.outputs > 3) return nullptr;
  PreparedAttention::Options options;
  BOLIDE_TRY(options.q_heads, a.integer("q_num_heads", 0));
  BOLIDE_TRY(options.kv_heads, a.integer("kv_num_heads", 0));
  BOLIDE_TRY(const int64_t causal, a.integer("is_causal", 0));
  BOLIDE_TRY(options.left, a.integer("left_window_size", -1));
  BOLIDE_TRY(options.right, a.integer("right_window_size", -1));
  BOLIDE_TRY(options.softcap, a.number("softcap", 0));
  if (options.left < -1 || options.right < -1) return nullptr;  // the row says so
  if (causal != 0) options.right = 0;
  return std::make_unique<PreparedAttention>(*panels, *rows, options);
}

Prepared prepare_microsoft_attention(const PrepareContext& c) {
  const isa::PanelFunctions* panels = panel_functions(c.device.isa);
  const Attributes& a = c.attributes;
  const Tensor *w = c.constant(1), *bias = c.constant(2);
  BOLIDE_TRY(const int64_t H, a.integer("num_heads", 0));
  BOLIDE_TRY(const int64_t rotary, a.integer("do_rotary", 0));
  BOLIDE_TRY(const int64_t shared, a.integer("past_present_share_buffer", 0));
  BOLIDE_TRY(const int64_t causal, a.integer("unidirectional", 0));
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  if (panels == nullptr || rows == nullptr || w == nullptr || w->dtype() != DType::kF32 || w->rank() != 2 ||
      c.outputs > 2 || rotary != 0 || shared != 0 || H < 1)
    return nullptr;
  const int64_t N = w->dim(1), third = N / 3;
  BOLIDE_TRY(const auto sizes, a.integers("qkv_hidden_sizes", {third, third, third}));
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[2] < 1 || sizes[0] > N || sizes[2] > N || sizes[0] != sizes[1] ||
      2 * sizes[0] + sizes[2] != N || sizes[0] % H != 0 || sizes[2] % H != 0 ||
      ((c.has(4) || c.outputs > 1) && sizes[0] != sizes[2]))
    return nullptr;
  if (c.has(2) && (bias == nullptr || bias->dtype() != DType::kF32 || bias->shape() != Shape{N})) return nullptr;
  BOLIDE_TRY(auto matrix,
             PackedMatrix::make({w->as<float>().data(), w->dim(0), N, N, 1}, c.compute, c.device, c.workers));
  if (matrix == nullptr) return nullptr;
  std::vector<float> biases;
  if (bias != nullptr) biases.assign(bias->as<float>().begin(), bias->as<float>().end());
  return std::make_unique<PackedAttention>(*panels, *rows, std::move(matrix), std::move(biases), H, sizes[0], sizes[2],
                                           causal != 0);
}

Prepared prepare_multi_head_attention(const PrepareContext& c) {
  const isa::PanelFunctions* panels = panel_functions(c.device.isa);
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  BOLIDE_TRY(const int64_t heads, c.attributes.integer("num_heads", 0));
  BOLIDE_TRY(const int64_t causal, c.attributes.integer("unidirectional", 0));
  if (panels == nullptr || rows == nullptr || c.outputs > 3 || heads < 1) return nullptr;
  return std::make_unique<PreparedMultiHead>(*panels, *rows, heads, causal != 0);
}

}  // namespace bolide
