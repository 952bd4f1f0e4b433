// QMatMul with packed weights: kernels/igemm_int8.
#include "ops/quantised_prepared.h"

#include <algorithm>

#include "ops/dense.h"
#include "ops/shape.h"
#include "tensor/caching_pool.h"

namespace bolide {

Result<> check_codes(const Tensor& t, DType dtype, std::string_view name) {
  if (t.dtype() == dtype) return {};
  return error(Code::kInvalid,
               fmt::format("{} is of {}, its zero point of {}", name, to_string(t.dtype()), to_string(dtype)));
}
// Whether it is one row for all of the outputs.
Result<bool> check_residual(const Tensor& residual, const QuantisedSpec& spec, const Shape& shape) {
  BOLIDE_TRY(check_codes(residual, spec.residual.dtype, "the residual"));
  const bool row = residual.rank() == 1 && residual.elements() == shape[-1];
  if (row || residual.shape() == shape) return row;
  return error(Code::kInvalid, fmt::format("a residual of {} for {}", to_string(residual.shape()), to_string(shape)));
}

// All scales and zeros, if they are constants.
Result<std::optional<QuantisedSpec>> constants_of(const PrepareContext& context, int64_t columns) {
  for (size_t i = 0; i < context.constants.size(); ++i)
    if (i != kX && i != kW && i != kResidual && context.has(i) && context.constant(i) == nullptr)
      return std::optional<QuantisedSpec>();
  const Tensor residual_there = Tensor::scalar(DType::kU8, uint8_t{0});
  const auto tensor = [&](size_t i) -> const Tensor* {
    if (i == kResidual) return context.has(i) ? &residual_there : nullptr;
    return context.constant(i);
  };
  if (columns < 0)
    for (const size_t i : {kWScale, kWZero, kBias})
      if (const Tensor* t = tensor(i); t != nullptr && t->elements() != 1) return std::optional<QuantisedSpec>();
  BOLIDE_TRY(QuantisedSpec spec, read_quantised(context.attributes, tensor, columns));
  return std::optional(std::move(spec));
}

namespace {

class PreparedQMatMul : public PreparedOp {
 public:
  PreparedQMatMul(const Int8Engine& engine, QuantisedSpec spec, bool transposed)
      : engine_(engine), spec_(std::move(spec)), transposed_(transposed) {
    kernel_ = fmt::format("matmul_int8_{}", engine_.isa);
  }
  std::string_view kernel() const override { return kernel_; }
  size_t bytes() const override { return packed_.bytes() + finish_.bytes(); }
  bool holds(size_t input) const override { return input == kW && packed_.data; }

  // w [K, N] or [N, K].
  Result<> pack(const Tensor& w) {
    BOLIDE_TRY(packed_, packed(bytes_of(w), w.shape(), w.dtype(), packed_pool()));
    BOLIDE_TRY(finish_, FinishConstants::make(spec_, {&packed_, 1}, packed_.k));
    return {};
  }

  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(kX));
    if (!packed_.data) return run_both(c, *x);
    BOLIDE_TRY(check_codes(*x, spec_.x.dtype, "x"));
    const int64_t K = packed_.k, N = packed_.n;
    if (x->rank() < 1 || x->dim(-1) != K)
      return error(Code::kInvalid, fmt::format("a product of {} and [{}, {}]", to_string(x->shape()), K, N));
    Shape shape = x->shape();
    shape[-1] = N;
    const Tensor* residual = nullptr;
    bool row = false;
    if (spec_.has_residual) {
      BOLIDE_TRY(residual, c.tensor(kResidual));
      BOLIDE_TRY(row, check_residual(*residual, spec_, shape));
    }
    BOLIDE_TRY(product_of(shape.span()));
    BOLIDE_TRY(Tensor * y, c.make(0, spec_.out_dtype(), shape));
    if (y->elements() == 0) return true;
    Int8Finish finish = finish_.of(spec_, residual, y->mutable_data(), N);
    if (row) finish.residual_stride = 0;
    BOLIDE_TRY(const Matrix a, Matrix::make(c.pool(), bytes_of(*x), y->elements() / N, K, spec_.x.dtype == DType::kI8,
                                            finish_.needs_row_sums));
    return multiply(c.pool(), c.workers(), a, packed_, finish_, finish);
  }

 private:
  // Rows of x whose length is a multiple of 4, and their sums.
  struct Matrix {
    const uint8_t* data = nullptr;
    int64_t rows = 0, depth = 0;
    Tensor copy, sums;

    static Result<Matrix> make(TensorPool& pool, const uint8_t* x, int64_t rows, int64_t K, bool is_signed,
                               bool needs_sums) {
      Matrix m;
      m.data = x, m.rows = rows, m.depth = padded(K, 4);
      if (m.depth != K) {
        BOLIDE_TRY(m.copy, Tensor::make(DType::kU8, {rows, m.depth}, pool));
        for (int64_t i = 0; i < rows; ++i) {
          std::copy_n(x + i * K, K, bytes_of(m.copy) + i * m.depth);
          std::fill_n(bytes_of(m.copy) + i * m.depth + K, m.depth - K, uint8_t{0});
        }
        m.data = bytes_of(m.copy);
      }
      if (!needs_sums) return m;
      BOLIDE_TRY(m.sums, Tensor::make(DType::kI32, {rows}, pool));
      for (int64_t i = 0; i < rows; ++i) {
        const uint8_t* row = x + i * K;
        int32_t sum = 0;
        if (is_signed)
          for (int64_t k = 0; k < K; ++k) sum += row[k] ^ 0x80;
        else
          for (int64_t k = 0; k < K; ++k) sum += row[k];
        m.sums.mutate<int32_t>()[static_cast<size_t>(i)] = sum;
      }
      return m;
    }
  };

  Result<PackedInt8> packed(const uint8_t* w, const Shape& shape, DType dtype, TensorPool& pool) const {
    const int64_t N = transposed_ ? shape[-2] : shape[-1], K = transposed_ ? shape[-1] : shape[-2];
    return pack_int8(engine_, N, K, reinterpret_cast<const int8_t*>(w), transposed_ ? K : 1, transposed_ ? 1 : N,
                     dtype == DType::kU8 ? 0x80 : 0, pool);
  }

  Result<bool> multiply(TensorPool& pool, Workers& workers, const Matrix& a, const PackedInt8& w,
                        const FinishConstants& constants, Int8Finish finish) const {
    if (constants.needs_row_sums) {
      finish.row_sums = a.sums.as<int32_t>().data();
      finish.column_zeros = constants.zeros.data();
    }
    Int8Job job;
    job.engine = &engine_, job.weights = &w;
    job.rows = a.rows, job.taps = 1, job.quads = a.depth / 4;
    job.flip = spec_.x.dtype == DType::kI8;
    job.finish = finish;
    if (engine_.lines != nullptr && !job.flip && a.depth % kLineBytes == 0 && a.rows >= kTileRows) {
      const int64_t tap = 0;
      Int8LinesJob lines{.engine = &engine_, .weights = &w, .image = {}, .finish = finish};
      lines.results = a.rows;
      lines.image = {.base = a.data, .row_stride = a.depth, .line_stride = a.rows * a.depth, .taps = &tap};
      lines.image.tap_count = 1, lines.image.tap_bytes = a.depth;
      lines.image.period = lines.image.valid = lines.image.positions = a.rows;
      run_int8_lines(lines, workers);
      return true;
    }
    BOLIDE_TRY(Tensor scratch,
               Tensor::make(DType::kU8, {static_cast<int64_t>(job.scratch_bytes(workers.threads()))}, pool));
    const auto point = [&](int64_t row0, int64_t rows, const uint8_t** to, int64_t) {
      for (int64_t i = 0; i < rows; ++i) to[i] = a.data + (row0 + i) * a.depth;
    };
    run_int8(job, point, bytes_of(scratch), workers);
    return true;
  }

  // Neither side is constant: both have the same batch, or w has none.
  Result<bool> run_both(RunContext& c, const Tensor& x) const {
    BOLIDE_TRY(const Tensor* w, c.tensor(kW));
    if (x.dtype() != spec_.x.dtype || w->rank() < 2 || x.rank() < 2 || spec_.has_residual ||
        w->dtype() != spec_.w_dtype)
      return false;
    const int64_t K = x.dim(-1), M = x.dim(-2), N = w->dim(transposed_ ? -2 : -1);
    if (w->dim(transposed_ ? -1 : -2) != K || K == 0) return false;
    Shape shape = x.shape();
    shape[-1] = N;
    if (w->rank() != x.rank()) return false;
    int64_t batch = 1;
    for (int i = 0; i < x.rank() - 2; ++i) {
      if (w->dim(i) != x.dim(i)) return false;
      batch *= x.dim(i);
    }
    BOLIDE_TRY(product_of(shape.span()));
    BOLIDE_TRY(Tensor * y, c.make(0, spec_.out_dtype(), shape));
    if (y->elements() == 0) return true;
    Workers& workers = c.workers();
    const int64_t size = static_cast<int64_t>(element_bytes(y->dtype()));
    const auto product = [&](int64_t b, Workers& inner) -> Result<bool> {
      BOLIDE_TRY(const PackedInt8 weights, packed(bytes_of(*w) + b * K * N, w->shape(), w->dtype(), heap_pool()));
      BOLIDE_TRY(const FinishConstants constants, FinishConstants::make(spec_, {&weights, 1}, K));
      const Int8Finish finish = constants.of(spec_, nullptr, y->mutable_data() + b * M * N * size, N);
      BOLIDE_TRY(const Matrix a, Matrix::make(heap_pool(), bytes_of(x) + b * M * K, M, K, spec_.x.dtype == DType::kI8,
                                              constants.needs_row_sums));
      return multiply(heap_pool(), inner, a, weights, constants, finish);
    };
    std::vector<Result<bool>> done(static_cast<size_t>(batch), true);
    if (batch < workers.threads()) {
      for (int64_t b = 0; b < batch; ++b) done[static_cast<size_t>(b)] = product(b, workers);
    } else {
      workers.run(batch, [&](int64_t b, int) {
        Workers alone(1);
        done[static_cast<size_t>(b)] = product(b, alone);
      });
    }
    for (Result<bool>& one_done : done)
      if (!one_done) return std::move(one_done);
    return true;
  }

  const Int8Engine& engine_;
  QuantisedSpec spec_;
  bool transposed_;
  PackedInt8 packed_;
  FinishConstants finish_;
  std::string kernel_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_quantised_matmul(const PrepareContext& context) {
  const Int8Engine* engine = int8_engine(context.device);
  const Tensor* w = context.constant(kW);
  BOLIDE_TRY(const int64_t transposed, context.attributes.integer("transB", 0));
  if (engine == nullptr || (w != nullptr && (w->rank() != 2 || w->elements() == 0))) return nullptr;
  const int64_t columns = w == nullptr ? -1 : quantised_columns(w->shape(), false, transposed != 0);
  BOLIDE_TRY(auto spec, constants_of(context, columns));
  if (!spec || (w != nullptr && spec->w_dtype != w->dtype())) return nullptr;
  auto prepared = std::make_unique<PreparedQMatMul>(*engine, *std::move(spec), transposed != 0);
  if (w != nullptr) BOLIDE_TRY(prepared->pack(*w));
  return std::unique_ptr<PreparedOp>(std::move(prepared));
}

}  // namespace bolide
