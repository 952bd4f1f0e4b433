#include <cmath>

#include "ops/dense.h"
#include "ops/einsum.h"
#include "ops/matrix.h"
#include "ops/ops.h"
#include "ops/prepared_rows.h"
#include "ops/shape.h"

namespace bolide {
namespace {

// Y[..., M, N] = A[..., M, K] B[..., K, N]; a vector is a row on the left, a column on the right.
Result<> run_matmul(RunContext& c) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  if (a->rank() == 0 || b->rank() == 0) return error(Code::kInvalid, "a scalar is no matrix");
  if (a->dtype() != b->dtype())
    return error(Code::kInvalid, fmt::format("A is of {}, B of {}", to_string(a->dtype()), to_string(b->dtype())));
  const int64_t M = a->rank() == 1 ? 1 : a->dim(-2), K = a->dim(-1), N = b->rank() == 1 ? 1 : b->dim(-1);
  if ((b->rank() == 1 ? b->dim(0) : b->dim(-2)) != K)
    return error(Code::kInvalid,
                 fmt::format("A {} and B {} have no product", to_string(a->shape()), to_string(b->shape())));
  const auto outer = [](const Tensor& t) {
    Shape shape = t.shape();
    shape.rank = std::max(0, shape.rank - 2);
    return shape;
  };
  BOLIDE_TRY(const Shape batch, broadcast(outer(*a), outer(*b)));
  Shape shape = batch;
  if (batch.rank + (a->rank() > 1) + (b->rank() > 1) > kRankMax)
    return error(Code::kUnsupported, "a product of too many dims");
  if (a->rank() > 1) shape.dims[static_cast<size_t>(shape.rank++)] = M;
  if (b->rank() > 1) shape.dims[static_cast<size_t>(shape.rank++)] = N;
  std::vector<std::pair<int64_t, int64_t>> at;  // the matrices of A and B for each of Y
  BOLIDE_TRY(const int64_t count, product_of(batch.span()));
  at.reserve(static_cast<size_t>(count));
  for_each_offset(batch, broadcast_strides(outer(*a), batch), broadcast_strides(outer(*b), batch),
                  [&](int64_t, int64_t from_a, int64_t from_b) { at.emplace_back(from_a, from_b); });
  return in_wide(a->dtype(), "A", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_a, widened<T>(c, *a));
    BOLIDE_TRY(const Tensor wide_b, widened<T>(c, *b));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    // One right matrix for all: the left ones are one tall matrix.
    const bool tall = b->rank() <= 2;
    multiply<T>(c.workers(), tall ? M * count : M, N, K, tall ? 1 : count, [&](int64_t i) {
      const auto [from_a, from_b] = tall ? std::pair<int64_t, int64_t>() : at[static_cast<size_t>(i)];
      return Product<T>{{wide_a.as<T>().data() + from_a * M * K, K, 1},
                        {wide_b.as<T>().data() + from_b * K * N, N, 1},
                        y.mutate<T>().data() + i * M * N,
                        N};
    });
    return emit(c, 0, a->dtype(), std::move(y));
  });
}

Result<> run_gemm(RunContext& c) { return gemm_then(c, nullptr); }

// By elimination with row pivots, in f64.
double determinant(std::vector<double>& m, size_t n) {
  double det = 1;
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i)
      if (std::abs(m[i * n + k]) > std::abs(m[pivot * n + k])) pivot = i;
    if (m[pivot * n + k] == 0) return 0;
    if (pivot != k) {
      for (size_t j = k; j < n; ++j) std::swap(m[k * n + j], m[pivot * n + j]);
      det = -det;
    }
    det *= m[k * n + k];
    for (size_t i = k + 1; i < n; ++i) {
      const double factor = m[i * n + k] / m[k * n + k];
      for (size_t j = k + 1; j < n; ++j) m[i * n + j] -= factor * m[k * n + j];
    }
  }
  return det;
}

Result<> run_det(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->rank() < 2 || x->dim(-1) != x->dim(-2))
    return error(Code::kInvalid, fmt::format("X is {}, expected square matrices", to_string(x->shape())));
  Shape shape = x->shape();
  shape.rank -= 2;
  const auto n = static_cast<size_t>(x->dim(-1));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<double>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<double>(c, shape));
    const auto in = wide.as<double>();
    const auto out = y.mutate<double>();
    std::vector<double> m;
    for (size_t i = 0; i < out.size(); ++i) {
      m.assign(in.begin() + static_cast<ptrdiff_t>(i * n * n), in.begin() + static_cast<ptrdiff_t>((i + 1) * n * n));
      out[i] = determinant(m, n);
    }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "MatMul", .run = run_matmul, .prepare = prepare_matmul},
    {.domain = "", .name = "Gemm", .run = run_gemm, .prepare = prepare_gemm},
    {.domain = "bolide", .name = "Dense", .run = run_dense, .prepare = prepare_matmul},
    {"", "Einsum", 12, run_einsum},
    {"", "Det", 11, run_det},
};

}  // namespace

// Y[M, N] = alpha A B + beta C, where C broadcasts to Y.
Result<> gemm_then(RunContext& c, const FunctionRef<double(double)>* f) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(2));
  BOLIDE_TRY(const float alpha, c.attributes().number("alpha", 1));
  BOLIDE_TRY(const float beta, c.attributes().number("beta", 1));
  BOLIDE_TRY(const int64_t turn_a, c.attributes().integer("transA", 0));
  BOLIDE_TRY(const int64_t turn_b, c.attributes().integer("transB", 0));
  if (a->rank() != 2 || b->rank() != 2)
    return error(Code::kInvalid,
                 fmt::format("A is {}, B {}: expected matrices", to_string(a->shape()), to_string(b->shape())));
  if (a->dtype() != b->dtype())
    return error(Code::kInvalid, fmt::format("A is of {}, B of {}", to_string(a->dtype()), to_string(b->dtype())));
  const int64_t M = a->dim(turn_a ? 1 : 0), K = a->dim(turn_a ? 0 : 1), N = b->dim(turn_b ? 0 : 1);
  if (b->dim(turn_b ? 1 : 0) != K)
    return error(Code::kInvalid, fmt::format("A {} (transA {}) and B {} (transB {}) have no product",
                                             to_string(a->shape()), turn_a, to_string(b->shape()), turn_b));
  const Shape shape{M, N};
  if (bias != nullptr) {
    const auto wide = broadcast(bias->shape(), shape);
    if (!wide || *wide != shape)
      return error(Code::kInvalid,
                   fmt::format("C {} does not broadcast to {}", to_string(bias->shape()), to_string(shape)));
  }
  return in_wide(a->dtype(), "A", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide_a, widened<T>(c, *a));
    BOLIDE_TRY(const Tensor wide_b, widened<T>(c, *b));
    BOLIDE_TRY(const Tensor wide_c, widened_if<T>(c, 2));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    multiply<T>(c.workers(), M, N, K, 1, [&](int64_t) {
      return Product<T>{{wide_a.as<T>().data(), turn_a ? 1 : K, turn_a ? M : 1},
                        {wide_b.as<T>().data(), turn_b ? 1 : N, turn_b ? K : 1},
                        y.mutate<T>().data(),
                        N};
    });
    const auto out = y.mutate<T>();
    const auto scaled = [](float scale, T value) -> T {
      if (scale == 1) return value;
      if constexpr (std::is_integral_v<T>) {
        const double real = static_cast<double>(scale) * static_cast<double>(static_cast<int64_t>(value));
        return std::abs(real) < 0x1p62 ? static_cast<T>(static_cast<int64_t>(real)) : T{};
      } else {
        return static_cast<T>(scale) * value;
      }
    };
    if (alpha != 1)
      for (T& value : out) value = scaled(alpha, value);
    if (wide_c && beta != 0)
      for_each_offset(shape, broadcast_strides(wide_c.shape(), shape), {}, [&](int64_t i, int64_t from, int64_t) {
        out[static_cast<size_t>(i)] += scaled(beta, wide_c.as<T>()[static_cast<size_t>(from)]);
      });
    if (f != nullptr)
      for (T& value : out) value = static_cast<T>((*f)(static_cast<double>(value)));
    return emit(c, 0, a->dtype(), std::move(y));
  });
}

std::span<const OpDef> matrix_ops() { return kOps; }

}  // namespace bolide
