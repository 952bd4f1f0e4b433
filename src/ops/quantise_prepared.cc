// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear with one scale, QLinearAdd, QLinearGlobalAveragePool and
// the products of 8-bit integers (MatMulInteger, MatMulIntegerToFloat) with vector instructions.
#include "ops/quantise_prepared.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/igemm_int8/pack.h"
#include "ops/dense.h"
#include "ops/prepared_op.h"
#include "ops/quantise.h"

namespace bolide {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements for a thread

uint8_t* bytes_of(Tensor& t) { return reinterpret_cast<uint8_t*>(t.mutable_data()); }
const uint8_t* bytes_of(const Tensor& t) { return reinterpret_cast<const uint8_t*>(t.data()); }
bool is_byte(const Tensor& t) { return t.dtype() == DType::kU8 || t.dtype() == DType::kI8; }
int32_t code_of(const Tensor& t, size_t i = 0) {
  return t.dtype() == DType::kI8 ? t.as<int8_t>()[i] : t.as<uint8_t>()[i];
}

// One scale of f32 and one zero point of bytes.
struct Step {
  float scale = 1;
  int32_t zero = 0;
  DType dtype = DType::kU8;

  static std::optional<Step> read(const RunContext& c, size_t scale, size_t zero) {
    const Tensor* s = c.has(scale) ? c.value(scale)->tensor() : nullptr;
    const Tensor* z = c.has(zero) ? c.value(zero)->tensor() : nullptr;
    if (s == nullptr || s->dtype() != DType::kF32 || s->elements() != 1 || s->rank() > 1) return std::nullopt;
    if (c.has(zero) && (z == nullptr || !is_byte(*z) || z->elements() != 1)) return std::nullopt;
    return z == nullptr ? Step{s->as<float>()[0], 0, DType::kU8} : Step{s->as<float>()[0], code_of(*z), z->dtype()};
  }
  float least() const { return dtype == DType::kI8 ? -128 : 0; }
  float most() const { return dtype == DType::kI8 ? 127 : 255; }
};

class WithEngine : public PreparedOp {
 public:
  WithEngine(const Int8Engine& engine, std::string_view what)
      : engine_(engine), kernel_(fmt::format("{}_{}", what, engine.isa == "amx" ? "vnni" : engine.isa)) {}
  std::string_view kernel() const override { return kernel_; }

 protected:
  const Int8Engine& engine_;

 private:
  std::string kernel_;
};

void round_all(Workers& workers, const Int8Engine& engine, const float* x, int64_t count, const Step& to,
               uint8_t* out) {
  parallel(workers, count, kGrain, [&](int64_t begin, int64_t end) {
    engine.round({.x = x + begin,
                  .count = end - begin,
                  .scale = to.scale,
                  .low = to.least() - static_cast<float>(to.zero),
                  .high = to.most() - static_cast<float>(to.zero),
                  .zero = to.zero,
                  .out = out + begin});
  });
}

class PreparedQuantise : public WithEngine {
 public:
  using WithEngine::WithEngine;
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    const auto to = Step::read(c, 1, 2);
    if (!to || x->dtype() != DType::kF32) return false;
    BOLIDE_TRY(Tensor * y, c.make(0, to->dtype, x->shape()));
    round_all(c.workers(), engine_, x->as<float>().data(), x->elements(), *to, bytes_of(*y));
    return true;
  }
};

class PreparedDequantise : public WithEngine {
 public:
  using WithEngine::WithEngine;
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    const auto from = Step::read(c, 1, 2);
    if (!from || !is_byte(*x) || (c.has(2) && from->dtype != x->dtype())) return false;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, x->shape()));
    float* const to = y->mutate<float>().data();
    parallel(c.workers(), x->elements(), kGrain, [&](int64_t begin, int64_t end) {
      engine_.open(bytes_of(*x) + begin, end - begin, x->dtype() == DType::kI8, from->zero, from->scale, to + begin);
    });
    return true;
  }
};

class PreparedDynamicQuantise : public WithEngine {
 public:
  using WithEngine::WithEngine;
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    if (x->dtype() != DType::kF32) return false;
    const float* const from = x->as<float>().data();
    const int64_t pieces = (x->elements() + kGrain - 1) / kGrain;
    std::vector<std::array<float, 2>> ranges(static_cast<size_t>(pieces), {0, 0});
    c.workers().run(pieces, [&](int64_t i, int) {
      auto& range = ranges[static_cast<size_t>(i)];
      engine_.range(from + i * kGrain, std::min(kGrain, x->elements() - i * kGrain), range.data(), &range[1]);
    });
    float least = 0, most = 0;
    for (const auto& range : ranges) least = std::min(least, range[0]), most = std::max(most, range[1]);
    Step to;
    to.scale = most == least ? 1.0f / 255 : (most - least) / 255;
    if (!std::isfinite(to.scale)) return false;
    to.zero = static_cast<int32_t>(std::nearbyint(std::clamp(-least / to.scale, 0.0f, 255.0f)));
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kU8, x->shape()));
    round_all(c.workers(), engine_, from, x->elements(), to, bytes_of(*y));
    c.set(1, Tensor::scalar(DType::kF32, to.scale));
    c.set(2, Tensor::scalar(DType::kU8, static_cast<uint8_t>(to.zero)));
    return true;
  }
};

class PreparedQLinearAdd : public WithEngine {
 public:
  using WithEngine::WithEngine;
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* a, c.tensor(0));
    BOLIDE_TRY(const Tensor* b, c.tensor(3));
    const auto left = Step::read(c, 1, 2), right = Step::read(c, 4, 5), to = Step::read(c, 6, 7);
    if (!left || !right || !to || !is_byte(*a) || b->dtype() != a->dtype() || to->dtype != a->dtype()) return false;
    // The second may be repeated along the first dims.
    const Shape tail = a->shape();
    if (b->rank() > a->rank()) return false;
    int skipped = 0;
    while (skipped < b->rank() && b->dim(skipped) == 1) ++skipped;
    for (int i = skipped; i < b->rank(); ++i)
      if (b->dim(i) != a->dim(a->rank() - b->rank() + i)) return false;
    const int64_t count = a->elements(), each = b->elements();
    BOLIDE_TRY(Tensor * y, c.make(0, a->dtype(), tail));
    if (count == 0 || each == 0) return true;
    Int8AddArgs args;
    args.a_signed = args.b_signed = a->dtype() == DType::kI8;
    args.ratio_a = left->scale / to->scale, args.ratio_b = right->scale / to->scale;
    args.rest = static_cast<float>(to->zero) -
                (args.ratio_a * static_cast<float>(left->zero) + args.ratio_b * static_cast<float>(right->zero));
    args.low = to->least(), args.high = to->most();
    const int64_t piece = count == each ? kGrain : each;
    parallel(c.workers(), (count + piece - 1) / piece, std::max<int64_t>(1, kGrain / piece),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 Int8AddArgs part = args;
                 part.count = std::min(piece, count - i * piece);
                 part.a = bytes_of(*a) + i * piece;
                 part.b = bytes_of(*b) + (count == each ? i * piece : 0);
                 part.out = bytes_of(*y) + i * piece;
                 engine_.add(part);
               }
             });
    return true;
  }
};

void add_bytes(const uint8_t* __restrict from, int32_t* __restrict sums, int64_t n, uint8_t flip) {
  for (int64_t i = 0; i < n; ++i) sums[i] += from[i] ^ flip;
}

class PreparedAveragePool : public WithEngine {
 public:
  using WithEngine::WithEngine;
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    BOLIDE_TRY(const int64_t last, c.attributes().integer("channels_last", 0));
    const auto from = Step::read(c, 1, 2), to = Step::read(c, 3, 4);
    if (!from || !to || !is_byte(*x) || from->dtype != x->dtype() || to->dtype != x->dtype() || x->rank() < 3 ||
        last == 0)
      return false;
    const int64_t N = x->dim(0), C = x->dim(-1), plane = N * C == 0 ? 0 : x->elements() / (N * C);
    if (plane == 0 || plane > 1 << 22) return false;
    Shape shape = x->shape();
    for (int i = 1; i + 1 < shape.rank; ++i) shape[i] = 1;
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
    const uint8_t flip = x->dtype() == DType::kI8 ? 0x80 : 0;
    const int32_t zero = from->zero + (flip != 0 ? 128 : 0);
    const float factor = from->scale / static_cast<float>(plane) / to->scale;
    constexpr int64_t kChannels = 256;
    const int64_t blocks = (C + kChannels - 1) / kChannels;
    c.workers().run(N * blocks, [&](int64_t chunk, int) {
      const int64_t n = chunk / blocks, first = chunk % blocks * kChannels, count = std::min(kChannels, C - first);
      int32_t sums[kChannels] = {};
      for (int64_t i = 0; i < plane; ++i) add_bytes(bytes_of(*x) + (n * plane + i) * C + first, sums, count, flip);
      uint8_t* const out = bytes_of(*y) + n * C + first;
      for (int64_t i = 0; i < count; ++i) {
        const float v = static_cast<float>(sums[i] - static_cast<int32_t>(plane) * zero) * factor;
        const float code = std::nearbyint(v) + static_cast<float>(to->zero);
        out[i] = static_cast<uint8_t>(static_cast<int32_t>(std::clamp(code, to->least(), to->most())));
      }
    });
    return true;
  }
};

class PreparedLookUp : public WithEngine {
 public:
  using WithEngine::WithEngine;
  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    BOLIDE_TRY(const Tensor* table, c.tensor(1));
    if (!is_byte(*x) || !is_byte(*table) || table->elements() != 256) return false;
    BOLIDE_TRY(Tensor * y, c.make(0, table->dtype(), x->shape()));
    parallel(c.workers(), x->elements(), kGrain, [&](int64_t begin, int64_t end) {
      engine_.look_up(bytes_of(*x) + begin, end - begin, bytes_of(*table), bytes_of(*y) + begin);
    });
    return true;
  }
};

// MatMulInteger (kSums) and MatMulIntegerToFloat with constant B [K, N].
class PreparedIntegerProduct : public WithEngine {
 public:
  PreparedIntegerProduct(const Int8Engine& engine, bool floats)
      : WithEngine(engine, floats ? "matmul_int8_to_float" : "matmul_int8"), floats_(floats) {}
  size_t bytes() const override { return packed_.bytes() + zeros_.size() * 12; }

  Result<> pack(const Tensor& b, const Tensor* zero, const Tensor* scale, const Tensor* bias) {
    const int64_t K = b.dim(0), N = b.dim(1);
    const bool is_unsigned = b.dtype() == DType::kU8;
    BOLIDE_TRY(packed_,
               pack_int8(engine_, N, K, reinterpret_cast<const int8_t*>(b.data()), 1, N, is_unsigned ? 0x80 : 0));
    const auto width = static_cast<size_t>(padded(N, kInt8PanelColumns));
    zeros_.assign(width, 0), scales_.assign(width, 0), bias_.assign(width, 0);
    for (size_t i = 0; i < static_cast<size_t>(N); ++i) {
      zeros_[i] = (zero == nullptr ? 0 : code_of(*zero, zero->elements() == 1 ? 0 : i)) - (is_unsigned ? 128 : 0);
      needs_sums_ = needs_sums_ || zeros_[i] != 0;
      if (scale != nullptr) scales_[i] = scale->as<float>()[scale->elements() == 1 ? 0 : i];
      if (bias != nullptr) bias_[i] = bias->as<float>()[bias->elements() == 1 ? 0 : i];
    }
    dtype_ = b.dtype();
    return {};
  }

  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* a, c.tensor(0));
    const size_t zero_at = floats_ ? 4 : 2;
    BOLIDE_TRY(const Tensor* zero, c.tensor_if(zero_at));
    if (!is_byte(*a) || a->rank() < 1 || a->dim(-1) != packed_.k || packed_.k % 4 != 0) return false;
    if (zero != nullptr && (zero->dtype() != a->dtype() || zero->elements() != 1)) return false;
    float scale = 1;
    if (floats_) {
      BOLIDE_TRY(const Tensor* given, c.tensor(2));
      if (given->dtype() != DType::kF32 || given->elements() != 1) return false;
      scale = given->as<float>()[0];
    }
    const bool flip = a->dtype() == DType::kI8;
    const int32_t x_zero = (zero == nullptr ? 0 : code_of(*zero)) + (flip ? 128 : 0);
    const int64_t K = packed_.k, N = packed_.n;
    Shape shape = a->shape();
    shape[-1] = N;
    BOLIDE_TRY(const int64_t total, product_of(shape.span()));
    BOLIDE_TRY(Tensor * y, c.make(0, floats_ ? DType::kF32 : DType::kI32, shape));
    if (total == 0) return true;
    const int64_t rows = total / N;
    const auto width = static_cast<int64_t>(zeros_.size());
    BOLIDE_TRY(Tensor offsets, c.scratch(DType::kI32, {width}));
    BOLIDE_TRY(Tensor scales, c.scratch(DType::kF32, {width}));
    BOLIDE_TRY(Tensor row_sums, c.scratch(DType::kI32, {needs_sums_ ? rows : 0}));
    for (size_t i = 0; i < zeros_.size(); ++i) {
      const uint32_t sum = static_cast<uint32_t>(packed_.sums.as<int32_t>()[i]);
      const uint32_t all = static_cast<uint32_t>(K) * static_cast<uint32_t>(zeros_[i]);
      offsets.mutate<int32_t>()[i] = static_cast<int32_t>(static_cast<uint32_t>(x_zero) * (all - sum));
      scales.mutate<float>()[i] = scale * scales_[i];
    }
    if (needs_sums_) {
      int32_t* const to = row_sums.mutate<int32_t>().data();
      parallel(c.workers(), rows, std::max<int64_t>(1, kGrain / K), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          int32_t sum = 0;
          const uint8_t* row = bytes_of(*a) + i * K;
          const uint8_t turned = flip ? 0x80 : 0;
          for (int64_t k = 0; k < K; ++k) sum += row[k] ^ turned;
          to[i] = sum;
        }
      });
    }
    Int8Job job;
    job.engine = &engine_, job.weights = &packed_;
    job.rows = rows, job.taps = 1, job.quads = K / 4, job.flip = flip;
    Int8Finish& f = job.finish;
    f.kind = floats_ ? Int8Finish::kFloats : Int8Finish::kSums;
    f.offsets = offsets.as<int32_t>().data(), f.scales = scales.as<float>().data(), f.bias = bias_.data();
    if (needs_sums_) f.row_sums = row_sums.as<int32_t>().data(), f.column_zeros = zeros_.data();
    f.low = -std::numeric_limits<float>::infinity(), f.high = -f.low;
    f.out = y->mutable_data(), f.out_stride = N;
    BOLIDE_TRY(Tensor scratch, c.scratch(DType::kU8, {static_cast<int64_t>(job.scratch_bytes(c.workers().threads()))}));
    const auto point = [&](int64_t row0, int64_t count, const uint8_t** to, int64_t) {
      for (int64_t i = 0; i < count; ++i) to[i] = bytes_of(*a) + (row0 + i) * K;
    };
    run_int8(job, point, bytes_of(scratch), c.workers());
    return true;
  }

 private:
  bool floats_, needs_sums_ = false;
  DType dtype_ = DType::kNone;
  PackedInt8 packed_;
  std::vector<int32_t> zeros_;
  std::vector<float> scales_, bias_;
};

template <class T>
Result<std::unique_ptr<PreparedOp>> with_engine(const PrepareContext& context, std::string_view what) {
  const Int8Engine* engine = int8_engine(context.device);
  if (engine == nullptr) return nullptr;
  return std::unique_ptr<PreparedOp>(std::make_unique<T>(*engine, what));
}

bool only_has(const Attributes& attributes, std::initializer_list<std::string_view> names) {
  return std::all_of(attributes.all().begin(), attributes.all().end(),
                     [&](const auto& one) { return std::find(names.begin(), names.end(), one.first) != names.end(); });
}

Result<std::unique_ptr<PreparedOp>> integer_product(const PrepareContext& context, bool floats) {
  const Int8Engine* engine = int8_engine(context.device);
  const Tensor* b = context.constant(1);
  if (engine == nullptr || b == nullptr || b->rank() != 2 || !is_byte(*b) || b->elements() == 0) return nullptr;
  const int64_t N = b->dim(1);
  const auto fits = [&](size_t i, DType dtype) {
    const Tensor* t = context.constant(i);
    if (!context.has(i)) return true;
    return t != nullptr && t->dtype() == dtype && (t->elements() == 1 || (t->rank() == 1 && t->elements() == N));
  };
  const size_t zero = floats ? 5 : 3;
  if (!fits(zero, b->dtype()) || (floats && (!context.has(3) || !fits(3, DType::kF32) || !fits(6, DType::kF32))))
    return nullptr;
  auto prepared = std::make_unique<PreparedIntegerProduct>(*engine, floats);
  BOLIDE_TRY(prepared->pack(*b, context.constant(zero), floats ? context.constant(3) : nullptr,
                            floats ? context.constant(6) : nullptr));
  return std::unique_ptr<PreparedOp>(std::move(prepared));
}

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_quantise(const PrepareContext& context) {
  if (!only_has(context.attributes, {"axis"})) return nullptr;
  return with_engine<PreparedQuantise>(context, "quantise");
}
Result<std::unique_ptr<PreparedOp>> prepare_dequantise(const PrepareContext& context) {
  if (!only_has(context.attributes, {"axis"})) return nullptr;
  return with_engine<PreparedDequantise>(context, "dequantise");
}
Result<std::unique_ptr<PreparedOp>> prepare_dynamic_quantise(const PrepareContext& context) {
  return with_engine<PreparedDynamicQuantise>(context, "dynamic_quantise");
}
Result<std::unique_ptr<PreparedOp>> prepare_look_up(const PrepareContext& context) {
  return with_engine<PreparedLookUp>(context, "look_up");
}
Result<std::unique_ptr<PreparedOp>> prepare_qlinear_add(const PrepareContext& context) {
  return with_engine<PreparedQLinearAdd>(context, "add_int8");
}
Result<std::unique_ptr<PreparedOp>> prepare_qlinear_global_average_pool(const PrepareContext& context) {
  return with_engine<PreparedAveragePool>(context, "average_int8");
}
Result<std::unique_ptr<PreparedOp>> prepare_matmul_integer(const PrepareContext& context) {
  return integer_product(context, false);
}
Result<std::unique_ptr<PreparedOp>> prepare_matmul_integer_to_float(const PrepareContext& context) {
  return integer_product(context, true);
}

}  // namespace bolide
