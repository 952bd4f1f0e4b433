// MatMul, Gemm and their fused kin made ready: constant matrices packed into strips, batches of activations multiplied
// by panels.
#include <algorithm>
#include <cmath>

#include "kernels/linear/packed_matrix.h"
#include "kernels/panels/panels.h"
#include "ops/dense.h"
#include "ops/prepared_rows.h"
#include "ops/shape.h"

namespace bolide {
namespace {

// What is added to each row: a constant, or an input that must have as many elements.
struct RowBias {
  std::vector<float> constant;
  bool is_input = false;
};

// y [..., N] = f(x [..., K] W + bias + residual), W constant.
class PackedProduct final : public PreparedOp {
 public:
  PackedProduct(std::unique_ptr<PackedMatrix> matrix, RowBias bias, FinishRow finish, size_t residual, bool matrices)
      : matrix_(std::move(matrix)), bias_(std::move(bias)), finish_(finish), residual_(residual), matrices_(matrices) {}

  std::string_view kernel() const override { return matrix_->kernel(); }
  size_t bytes() const override { return matrix_->bytes() + bias_.constant.size() * sizeof(float); }
  bool holds(size_t input) const override {
    return !bias_.is_input && (input == 1 || (input == 2 && !bias_.constant.empty()));
  }

  Result<bool> run(RunContext& c) const override {
    const int64_t K = matrix_->k(), N = matrix_->n();
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    if (x->dtype() != DType::kF32)
      return error(Code::kInvalid, fmt::format("A is of {}, B of f32", to_string(x->dtype())));
    if (x->rank() < 1 || x->dim(-1) != K || (matrices_ && x->rank() != 2))
      return error(Code::kInvalid, fmt::format("A {} and B [{}, {}] have no product", to_string(x->shape()), K, N));
    Shape shape = x->shape();
    shape[-1] = N;
    PackedMatrix::Rows rows{.x_stride = K, .out_stride = N, .residual_stride = N, .finish = finish_};
    rows.rows = x->elements() / K;
    if (bias_.is_input && c.has(2)) {
      const Tensor* bias = f32_at(c, 2);
      if (bias == nullptr || bias->elements() != N || bias->dim(-1) != N || bias->rank() > shape.rank) return false;
      rows.bias = bias->as<float>().data();
    } else if (!bias_.constant.empty()) {
      rows.bias = bias_.constant.data();
    }
    if (residual_ > 0 && c.has(residual_)) {
      const Tensor* residual = f32_at(c, residual_);
      if (residual == nullptr || residual->shape() != shape)
        return error(Code::kInvalid, fmt::format("the residual is no f32{}", to_string(shape)));
      rows.residual = residual->as<float>().data();
    }
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
    if (y->elements() == 0) return true;
    const auto bytes = static_cast<int64_t>(matrix_->workspace(rows.rows, c.workers().threads()));
    BOLIDE_TRY(Tensor workspace, c.scratch(DType::kU8, {bytes}));
    rows.x = x->as<float>().data(), rows.out = y->mutate<float>().data();
    matrix_->run(rows, {workspace.mutable_data(), workspace.bytes()}, c.workers());
    return true;
  }

 private:
  std::unique_ptr<PackedMatrix> matrix_;
  RowBias bias_;
  FinishRow finish_;
  size_t residual_;  // input; 0: none
  bool matrices_;    // x has two dims
};

// Two activations, the right one perhaps turned.
class PanelMatMul final : public PreparedOp {
 public:
  PanelMatMul(const isa::PanelFunctions& panels, bool turn_b, float alpha)
      : panels_(panels), turn_b_(turn_b), alpha_(alpha) {}

  std::string_view kernel() const override { return "matmul_panels"; }

  Result<bool> run(RunContext& c) const override {
    const Tensor *a = f32_at(c, 0), *b = f32_at(c, 1);
    if (a == nullptr || b == nullptr || a->rank() < 2 || b->rank() < 2) return false;
    const int64_t rows_b = b->dim(turn_b_ ? -1 : -2);
    PanelBatch batch{.m = a->dim(-2), .n = b->dim(turn_b_ ? -2 : -1), .k = a->dim(-1), .alpha = alpha_};
    if (batch.k != rows_b || batch.k == 0) return false;
    Shape outer_a = a->shape(), outer_b = b->shape();
    outer_a.rank -= 2, outer_b.rank -= 2;
    auto outer = broadcast(outer_a, outer_b);
    if (!outer || outer->rank + 2 > kRankMax) return false;
    Shape shape = *outer;
    shape.dims[static_cast<size_t>(shape.rank++)] = batch.m;
    shape.dims[static_cast<size_t>(shape.rank++)] = batch.n;
    BOLIDE_TRY(batch.count, product_of(outer->span()));
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
    if (y->elements() == 0) return true;
    batch.b_row = turn_b_ ? 1 : batch.n, batch.b_column = turn_b_ ? batch.k : 1;
    const int64_t own_a = batch.m * batch.k, own_b = batch.k * batch.n, own_y = batch.m * batch.n;
    const float *from_a = a->as<float>().data(), *from_b = b->as<float>().data();
    float* to = y->mutate<float>().data();
    std::vector<std::pair<int64_t, int64_t>> at;
    if (outer_b.elements() == 1) {  // one right matrix: the left ones are one tall matrix
      batch.m *= batch.count, batch.count = 1;
    } else if (outer_a != outer_b) {
      at.reserve(static_cast<size_t>(batch.count));
      for_each_offset(*outer, broadcast_strides(outer_a, *outer), broadcast_strides(outer_b, *outer),
                      [&](int64_t, int64_t i, int64_t j) { at.emplace_back(i, j); });
    }
    const auto bytes = static_cast<int64_t>(panel_workspace(panels_, batch, c.workers().threads()));
    BOLIDE_TRY(Tensor workspace, c.scratch(DType::kU8, {bytes}));
    multiply_panels(
        panels_, batch,
        [&](int64_t i) {
          const auto [of_a, of_b] = at.empty() ? std::pair(i, i) : at[static_cast<size_t>(i)];
          return PanelProduct{from_a + of_a * own_a, batch.k, from_b + of_b * own_b, to + i * own_y, batch.n};
        },
        {workspace.mutable_data(), workspace.bytes()}, c.workers());
    return true;
  }

 private:
  const isa::PanelFunctions& panels_;
  bool turn_b_;
  float alpha_;
};

// A constant of f32 with as many elements as a row, or one, times `by`.
bool row_of(const Tensor& t, int64_t N, float by, std::vector<float>& to) {
  if (t.dtype() != DType::kF32 || t.rank() > 2 || (t.rank() == 2 && t.dim(0) != 1)) return false;
  if (t.elements() != N && t.elements() != 1) return false;
  to.resize(static_cast<size_t>(N));
  for (size_t i = 0; i < to.size(); ++i) to[i] = by * t.as<float>()[t.elements() == 1 ? 0 : i];
  return true;
}

bool is_matrix(const Tensor* t) { return t != nullptr && t->dtype() == DType::kF32 && t->rank() == 2; }

}  // namespace

Prepared prepare_matmul(const PrepareContext& c) {
  const Attributes& a = c.attributes;
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  const isa::PanelFunctions* panels = panel_functions(c.device.isa);
  BOLIDE_TRY(const float alpha, a.number("alpha", 1));
  BOLIDE_TRY(const int64_t turn_a, a.integer("transA", 0));
  BOLIDE_TRY(const int64_t turn_b, a.integer("transB", 0));
  BOLIDE_TRY(const int64_t batch_a, a.integer("transBatchA", 0));
  BOLIDE_TRY(const int64_t batch_b, a.integer("transBatchB", 0));
  if (rows == nullptr || panels == nullptr || turn_a != 0 || batch_a != 0 || batch_b != 0) return nullptr;
  const Tensor *w = c.constant(1), *b = c.constant(2);
  BOLIDE_TRY(const std::string activation, a.text("activation", ""));
  FinishRow finish = nullptr;
  if (!finish_of(activation, *rows, finish)) return nullptr;
  if (!is_matrix(w) || alpha != 1) {
    if (c.has(2) || c.has(3) || finish != nullptr) return nullptr;
    return std::make_unique<PanelMatMul>(*panels, turn_b != 0, alpha);
  }
  RowBias bias;
  const int64_t K = w->dim(turn_b != 0 ? 1 : 0), N = w->dim(turn_b != 0 ? 0 : 1);
  if (b != nullptr && !row_of(*b, N, 1, bias.constant)) return nullptr;
  if (b == nullptr && c.has(2)) return nullptr;
  const PackedMatrix::Source source{w->as<float>().data(), K, N, turn_b != 0 ? 1 : N, turn_b != 0 ? K : 1};
  BOLIDE_TRY(auto matrix, PackedMatrix::make(source, c.compute, c.device, c.workers));
  if (matrix == nullptr) return nullptr;
  return std::make_unique<PackedProduct>(std::move(matrix), std::move(bias), finish, c.has(3) ? 3 : 0, false);
}

Prepared prepare_gemm(const PrepareContext& c) {
  const Attributes& a = c.attributes;
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  const Tensor *w = c.constant(1), *added = c.constant(2);
  BOLIDE_TRY(const float alpha, a.number("alpha", 1));
  BOLIDE_TRY(const float beta, a.number("beta", 1));
  BOLIDE_TRY(const int64_t turn_a, a.integer("transA", 0));
  BOLIDE_TRY(const int64_t turn_b, a.integer("transB", 0));
  BOLIDE_TRY(const std::string activation, a.text("activation", ""));
  FinishRow finish = nullptr;
  if (rows == nullptr || !is_matrix(w) || alpha != 1 || turn_a != 0 || !finish_of(activation, *rows, finish))
    return nullptr;
  const int64_t K = w->dim(turn_b != 0 ? 1 : 0), N = w->dim(turn_b != 0 ? 0 : 1);
  RowBias bias;
  if (added != nullptr) {
    if (!row_of(*added, N, beta, bias.constant)) return nullptr;
  } else if (c.has(2)) {
    bias.is_input = true;
    if (beta != 1) return nullptr;
  }
  const PackedMatrix::Source source{w->as<float>().data(), K, N, turn_b != 0 ? 1 : N, turn_b != 0 ? K : 1};
  BOLIDE_TRY(auto matrix, PackedMatrix::make(source, c.compute, c.device, c.workers));
  if (matrix == nullptr) return nullptr;
  return std::make_unique<PackedProduct>(std::move(matrix), std::move(bias), finish, 0, true);
}

}  // namespace bolide
