// Attention and its com.microsoft kin made ready: projections packed, heads by panels, scores never whole in memory.
#include <algorithm>
#include <cmath>

#include "kernels/linear/packed_matrix.h"
#include "kernels/panels/panels.h"
#include "ops/attend.h"
#include "ops/dense.h"
#include "ops/microsoft_mask.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

// What is added to scores [B, H, S, L]: a tensor of the node, or one that was made of its masks.
struct ScoreBias {
  Tensor made;
  const float* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;

  const float* at(int64_t b, int64_t h) const { return data == nullptr ? nullptr : data + b * batch + h * head; }
};

// Inputs `mask` and `bias` of com.microsoft's ops.
Result<ScoreBias> microsoft_bias(const RunContext& c, size_t mask, size_t bias, const Shape& scores) {
  ScoreBias to;
  if (!c.has(mask) && !c.has(bias)) return to;
  const int64_t B = scores[0], H = scores[1], S = scores[2], L = scores[3];
  const Tensor* plain = f32_at(c, bias);
  const auto fits = [&](int axis) { return plain->dim(axis) == 1 || plain->dim(axis) == scores[axis]; };
  if (!c.has(mask) && plain != nullptr && plain->rank() == 4 && fits(0) && fits(1) && fits(2) && plain->dim(3) >= L) {
    const Shape& shape = plain->shape();
    to.made = *plain, to.data = plain->as<float>().data();
    to.row = shape[2] == 1 ? 0 : shape[3];
    to.head = shape[1] == 1 ? 0 : shape[2] * shape[3];
    to.batch = shape[0] == 1 ? 0 : shape[1] * shape[2] * shape[3];
    return to;
  }
  BOLIDE_TRY(const KeyMask masks, KeyMask::read(c, mask, bias, scores));
  const int64_t heads = masks.bias_head != 0 ? H : 1, rows = masks.bias_row != 0 || masks.rows > 1 ? S : 1;
  BOLIDE_TRY(product_of(std::array{B, heads, rows, L}));
  BOLIDE_TRY(to.made, make_wide<float>(c, {B, heads, rows, L}));
  float* row = to.made.mutate<float>().data();
  to.data = row;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < rows; ++i, row += L) masks.write<float>(b, h, i, L, row);
  to.row = rows == 1 ? 0 : L, to.head = heads == 1 ? 0 : rows * L, to.batch = heads * rows * L;
  return to;
}

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

// Heads over f32, with f32 sums.
struct HeadsCase {
  int64_t B = 0, H = 0, G = 0, S = 0, L = 0, D = 0, Dv = 0;
  Heads<const float> q, k, v;
  Heads<float> out;
  float scale = 1;
  int64_t seen = INT64_MAX;  // keys that the first query sees; each further one sees one more
};

Result<> attend_all(const RunContext& c, const isa::PanelFunctions& panels, const HeadsCase& a, const ScoreBias& bias) {
  const auto task = [&](int64_t b, int64_t h) {
    const int64_t g = h / (a.H / a.G);
    return isa::AttendTask{.q = a.q.at(b, h, 0),
                           .q_stride = a.q.row,
                           .k = a.k.at(b, g, 0),
                           .k_stride = a.k.row,
                           .v = a.v.at(b, g, 0),
                           .v_stride = a.v.row,
                           .out = a.out.at(b, h, 0),
                           .out_stride = a.out.row,
                           .rows = a.S,
                           .keys = a.L,
                           .dim = a.D,
                           .value_dim = a.Dv,
                           .scale = a.scale,
                           .bias = bias.at(b, h),
                           .bias_stride = bias.row,
                           .seen = std::min(a.seen, a.L),
                           .scratch = nullptr};
  };
  if (a.B * a.H * a.S * a.Dv == 0) return {};
  const size_t bytes = attend_workspace(panels, task(0, 0), c.workers().threads());
  BOLIDE_TRY(Tensor workspace, c.scratch(DType::kU8, {static_cast<int64_t>(bytes)}));
  attend_heads(panels, {a.B, a.H}, task, {workspace.mutable_data(), workspace.bytes()}, c.workers());
  return {};
}

Result<float> scale_of(const Attributes& attributes, int64_t D, bool zero_is_none) {
  BOLIDE_TRY(const float scale, attributes.number("scale", 0));
  if (attributes.has("scale") && (scale != 0 || !zero_is_none)) return scale;
  return static_cast<float>(1 / std::sqrt(static_cast<double>(std::max<int64_t>(D, 1))));
}

class PreparedAttention final : public PreparedOp {
 public:
  PreparedAttention(const isa::PanelFunctions& panels, int64_t q_heads, int64_t kv_heads, bool causal)
      : panels_(panels), q_heads_(q_heads), kv_heads_(kv_heads), causal_(causal) {}
  std::string_view kernel() const override { return "attention_panels"; }

  Result<bool> run(RunContext& c) const override {
    const Tensor *q = f32_at(c, 0), *k = f32_at(c, 1), *v = f32_at(c, 2);
    if (q == nullptr || k == nullptr || v == nullptr || k->rank() != q->rank() || v->rank() != q->rank()) return false;
    for (size_t i = 4; i < c.inputs(); ++i)
      if (c.has(i)) return false;
    HeadsCase a;
    Shape shape = q->shape();
    if (q->rank() == 3) {
      if (q_heads_ < 1 || kv_heads_ < 1 || q->dim(2) % q_heads_ != 0 || k->dim(2) % kv_heads_ != 0 ||
          v->dim(2) % kv_heads_ != 0)
        return false;
      a.B = q->dim(0), a.S = q->dim(1), a.L = k->dim(1), a.H = q_heads_, a.G = kv_heads_;
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
    bool fits = true;
    BOLIDE_TRY(const ScoreBias bias,
               standard_bias(c, c.has(3) ? c.value(3)->tensor() : nullptr, {a.B, a.H, a.S, a.L}, fits));
    if (!fits || (c.has(3) && bias.data == nullptr)) return false;
    BOLIDE_TRY(a.scale, scale_of(c.attributes(), a.D, false));
    if (causal_) a.seen = 1;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
    const bool rows = q->rank() == 3;
    const auto view = [&]<class T>(T* data, int64_t heads, int64_t count, int64_t D) {
      return rows ? Heads<T>::row_major(data, heads, count, D) : Heads<T>::head_major(data, heads, count, D);
    };
    a.q = view(q->as<float>().data(), a.H, a.S, a.D);
    a.k = view(k->as<float>().data(), a.G, a.L, a.D);
    a.v = view(v->as<float>().data(), a.G, a.L, a.Dv);
    a.out = view(y->mutate<float>().data(), a.H, a.S, a.Dv);
    BOLIDE_TRY(attend_all(c, panels_, a, bias));
    return true;
  }

 private:
  const isa::PanelFunctions& panels_;
  int64_t q_heads_, kv_heads_;
  bool causal_;
};

// com.microsoft.Attention without a past: all three projections are one product.
class PackedAttention final : public PreparedOp {
 public:
  PackedAttention(const isa::PanelFunctions& panels, std::unique_ptr<PackedMatrix> matrix, std::vector<float> bias,
                  int64_t heads, int64_t hidden, int64_t value_hidden, bool causal)
      : panels_(panels),
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
    BOLIDE_TRY(const ScoreBias bias, microsoft_bias(c, 3, 5, {a.B, a.H, a.S, a.L}));
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, {a.B, a.S, value_hidden_}));
    if (y->elements() == 0) return true;
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
    a.out = Heads<float>::row_major(y->mutate<float>().data(), a.H, a.S, a.Dv);
    BOLIDE_TRY(a.scale, scale_of(c.attributes(), a.D, true));
    if (causal_) a.seen = 1;
    BOLIDE_TRY(attend_all(c, panels_, a, bias));
    return true;
  }

 private:
  const isa::PanelFunctions& panels_;
  std::unique_ptr<PackedMatrix> matrix_;
  std::vector<float> bias_;
  int64_t heads_, hidden_, value_hidden_;
  bool causal_;
};

// com.microsoft.MultiHeadAttention of query, key and value [B, rows, H * D].
class PreparedMultiHead final : public PreparedOp {
 public:
  PreparedMultiHead(const isa::PanelFunctions& panels, const isa::RowFunctions& rows, int64_t heads, bool causal)
      : panels_(panels), rows_(rows), heads_(heads), causal_(causal) {}
  std::string_view kernel() const override { return "attention_panels"; }

  Result<bool> run(RunContext& c) const override {
    const Tensor *q = f32_at(c, 0), *k = f32_at(c, 1), *v = f32_at(c, 2), *bias = f32_at(c, 3);
    if (q == nullptr || k == nullptr || v == nullptr || (c.has(3) && bias == nullptr)) return false;
    for (size_t i = 6; i < c.inputs(); ++i)
      if (c.has(i)) return false;
    if (q->rank() != 3 || k->rank() != 3 || v->rank() != 3 || q->dim(2) % heads_ != 0 || v->dim(2) % heads_ != 0)
      return false;
    HeadsCase a{.B = q->dim(0), .H = heads_, .G = heads_, .S = q->dim(1), .L = k->dim(1)};
    a.D = q->dim(2) / heads_, a.Dv = v->dim(2) / heads_;
    if (k->shape() != Shape{a.B, a.L, a.H * a.D} || v->dim(0) != a.B || v->dim(1) != a.L || a.L < 1 || a.D < 1)
      return false;
    const int64_t hidden = a.H * a.D;
    if (bias != nullptr && bias->shape() != Shape{2 * hidden + v->dim(2)}) return false;
    BOLIDE_TRY(const ScoreBias added, microsoft_bias(c, 4, 5, {a.B, a.H, a.S, a.L}));
    Tensor sides[] = {*q, *k, *v};
    for (int64_t i = 0; i < 3 && bias != nullptr; ++i) {
      Tensor& side = sides[i];
      BOLIDE_TRY(Tensor sum, make_wide<float>(c, side.shape()));
      const float *from = side.as<float>().data(), *plus = bias->as<float>().data() + i * hidden;
      float* to = sum.mutate<float>().data();
      const int64_t n = side.dim(2);
      for_row_ranges(c.workers(), side.dim(0) * side.dim(1), n, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) rows_.binary[isa::kRowAdd](from + r * n, plus, to + r * n, n);
      });
      side = std::move(sum);
    }
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, {a.B, a.S, a.H * a.Dv}));
    a.q = Heads<const float>::row_major(sides[0].as<float>().data(), a.H, a.S, a.D);
    a.k = Heads<const float>::row_major(sides[1].as<float>().data(), a.H, a.L, a.D);
    a.v = Heads<const float>::row_major(sides[2].as<float>().data(), a.H, a.L, a.Dv);
    a.out = Heads<float>::row_major(y->mutate<float>().data(), a.H, a.S, a.Dv);
    BOLIDE_TRY(a.scale, scale_of(c.attributes(), a.D, true));
    if (causal_) a.seen = 1;
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
  const Attributes& a = c.attributes;
  if (panels == nullptr || c.outputs != 1 || a.has("softcap") || a.has("left_window_size") ||
      a.has("right_window_size"))
    return nullptr;
  BOLIDE_TRY(const int64_t q_heads, a.integer("q_num_heads", 0));
  BOLIDE_TRY(const int64_t kv_heads, a.integer("kv_num_heads", 0));
  BOLIDE_TRY(const int64_t causal, a.integer("is_causal", 0));
  return std::make_unique<PreparedAttention>(*panels, q_heads, kv_heads, causal != 0);
}

Prepared prepare_microsoft_attention(const PrepareContext& c) {
  const isa::PanelFunctions* panels = panel_functions(c.device.isa);
  const Attributes& a = c.attributes;
  const Tensor *w = c.constant(1), *bias = c.constant(2);
  BOLIDE_TRY(const int64_t H, a.integer("num_heads", 0));
  BOLIDE_TRY(const int64_t rotary, a.integer("do_rotary", 0));
  BOLIDE_TRY(const int64_t shared, a.integer("past_present_share_buffer", 0));
  BOLIDE_TRY(const int64_t causal, a.integer("unidirectional", 0));
  if (panels == nullptr || w == nullptr || w->dtype() != DType::kF32 || w->rank() != 2 || c.outputs != 1 || c.has(4) ||
      rotary != 0 || shared != 0 || H < 1)
    return nullptr;
  const int64_t N = w->dim(1), third = N / 3;
  BOLIDE_TRY(const auto sizes, a.integers("qkv_hidden_sizes", {third, third, third}));
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[2] < 1 || sizes[0] > N || sizes[2] > N || sizes[0] != sizes[1] ||
      2 * sizes[0] + sizes[2] != N || sizes[0] % H != 0 || sizes[2] % H != 0)
    return nullptr;
  if (c.has(2) && (bias == nullptr || bias->dtype() != DType::kF32 || bias->shape() != Shape{N})) return nullptr;
  BOLIDE_TRY(auto matrix,
             PackedMatrix::make({w->as<float>().data(), w->dim(0), N, N, 1}, c.compute, c.device, c.workers));
  if (matrix == nullptr) return nullptr;
  std::vector<float> biases;
  if (bias != nullptr) biases.assign(bias->as<float>().begin(), bias->as<float>().end());
  return std::make_unique<PackedAttention>(*panels, std::move(matrix), std::move(biases), H, sizes[0], sizes[2],
                                           causal != 0);
}

Prepared prepare_multi_head_attention(const PrepareContext& c) {
  const isa::PanelFunctions* panels = panel_functions(c.device.isa);
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  BOLIDE_TRY(const int64_t heads, c.attributes.integer("num_heads", 0));
  BOLIDE_TRY(const int64_t causal, c.attributes.integer("unidirectional", 0));
  if (panels == nullptr || rows == nullptr || c.outputs != 1 || heads < 1) return nullptr;
  return std::make_unique<PreparedMultiHead>(*panels, *rows, heads, causal != 0);
}

}  // namespace bolide
