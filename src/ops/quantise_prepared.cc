// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear with one scale, QLinearAdd, QLinearGlobalAveragePool and
// the products of 8-bit integers (MatMulInteger, MatMulIntegerToFloat, DynamicQuantizeMatMul) with vector instructions.
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

// The least and the most of x and 0.
std::array<float, 2> range_of(Workers& workers, const Int8Engine& engine, const float* x, int64_t count) {
  const int64_t pieces = (count + kGrain - 1) / kGrain;
  std::vector<std::array<float, 2>> ranges(static_cast<size_t>(pieces), {0, 0});
  workers.run(pieces, [&](int64_t i, int) {
    auto& range = ranges[static_cast<size_t>(i)];
    engine.range(x + i * kGrain, std::min(kGrain, count - i * kGrain), range.data(), &range[1]);
  });
  float least = 0, most = 0;
  for (const auto& range : ranges) least = std::min(least, range[0]), most = std::max(most, range[1]);
  return {least, most};
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
    const auto [least, most] = range_of(c.workers(), engine_, from, x->elements());
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

// The codes of A, and what they stand for.
struct LeftCodes {
  const uint8_t* data = nullptr;  // [rows, depth]: K padded to a multiple of 4
  int64_t rows = 0, K = 0, depth = 0;
  bool flip = false;  // i8
  Tensor own;
};

// MatMulInteger, MatMulIntegerToFloat and DynamicQuantizeMatMul with constant B [K, N].
class PreparedIntegerProduct : public WithEngine {
 public:
  enum class Kind : uint8_t { kSums, kFloats, kDynamic };
  PreparedIntegerProduct(const Int8Engine& engine, Kind kind)
      : WithEngine(engine, kind == Kind::kSums     ? "matmul_int8"
                           : kind == Kind::kFloats ? "matmul_int8_to_float"
                                                   : "matmul_int8_dynamic"),
        kind_(kind) {}
  size_t bytes() const override { return packed_.bytes() + zeros_.size() * 12; }
  // B, and the constants that belong to it.
  bool holds(size_t input) const override {
    switch (kind_) {
      case Kind::kSums: return input == 1 || input == 3;
      case Kind::kFloats: return input == 1 || input == 3 || input == 5 || input == 6;
      case Kind::kDynamic: return input >= 1 && input <= 4;
    }
    return false;
  }

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
    return {};
  }

  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* a, c.tensor(0));
    const int64_t K = packed_.k, N = packed_.n;
    const bool dynamic = kind_ == Kind::kDynamic;
    if (a->rank() < 1 || a->dim(-1) != K || (dynamic ? a->dtype() != DType::kF32 : !is_byte(*a)))
      return error(Code::kInvalid,
                   fmt::format("A is {}{} for B [{}, {}]", to_string(a->dtype()), to_string(a->shape()), K, N));
    Shape shape = a->shape();
    shape[-1] = N;
    BOLIDE_TRY(const int64_t total, product_of(shape.span()));
    BOLIDE_TRY(Tensor * y, c.make(0, kind_ == Kind::kSums ? DType::kI32 : DType::kF32, shape));
    if (total == 0) return true;
    std::byte* const out = y->mutable_data();
    LeftCodes left{.data = dynamic ? nullptr : bytes_of(*a), .rows = total / N, .K = K, .depth = padded(K, 4)};
    left.flip = a->dtype() == DType::kI8;
    if (dynamic) {
      Step step;
      BOLIDE_TRY(step, rounded(c, *a, left));
      if (!std::isfinite(step.scale)) {  // infinity times no code
        std::fill_n(reinterpret_cast<float*>(out), total, std::numeric_limits<float>::quiet_NaN());
        return true;
      }
      BOLIDE_TRY(multiply(c, left, 0, left.rows, step.zero, step.scale, out));
      return true;
    }
    if (left.depth != K) {
      BOLIDE_TRY(left.own, c.scratch(DType::kU8, {left.rows, left.depth}));
      for (int64_t i = 0; i < left.rows; ++i) {
        std::copy_n(left.data + i * K, K, bytes_of(left.own) + i * left.depth);
        std::fill_n(bytes_of(left.own) + i * left.depth + K, left.depth - K, uint8_t{0});
      }
      left.data = bytes_of(left.own);
    }
    // One zero point and one scale, or, rarely, those of each row.
    BOLIDE_TRY(const Tensor* zero, c.tensor_if(kind_ == Kind::kFloats ? 4 : 2));
    BOLIDE_TRY(const Tensor* scale, kind_ == Kind::kFloats ? c.tensor(2) : Result<const Tensor*>(nullptr));
    const int64_t height = a->rank() < 2 ? 1 : a->dim(-2);
    const auto fits = [&](const Tensor* t) {
      return t == nullptr || t->elements() == 1 || t->elements() == height || t->elements() == left.rows;
    };
    if ((zero != nullptr && zero->dtype() != a->dtype()) || !fits(zero) || !fits(scale) ||
        (scale != nullptr && scale->dtype() != DType::kF32))
      return error(
          Code::kInvalid,
          fmt::format("the zero point or scale of A {}{} is of another type, or neither one value nor one a row",
                      to_string(a->dtype()), to_string(a->shape())));
    const bool by_row = (zero != nullptr && zero->elements() > 1) || (scale != nullptr && scale->elements() > 1);
    const int64_t step = by_row ? 1 : left.rows;
    for (int64_t first = 0; first < left.rows; first += step) {
      const auto at = [&](const Tensor* t) {
        return t->elements() == 1 ? size_t{0} : static_cast<size_t>(first % t->elements());
      };
      BOLIDE_TRY(multiply(c, left, first, step, zero == nullptr ? 0 : code_of(*zero, at(zero)),
                          scale == nullptr ? 1 : scale->as<float>()[at(scale)], out));
    }
    return true;
  }

 private:
  // A in codes of u8 over its range.
  Result<Step> rounded(RunContext& c, const Tensor& a, LeftCodes& to) const {
    const auto [least, most] = range_of(c.workers(), engine_, a.as<float>().data(), a.elements());
    Step step;
    step.scale = most == least ? 1.0f : (most - least) / 255;
    if (!std::isfinite(step.scale)) return step;
    step.zero = static_cast<int32_t>(std::nearbyint(std::clamp(-least / step.scale, 0.0f, 255.0f)));
    BOLIDE_TRY(to.own, c.scratch(DType::kU8, {to.rows, to.depth}));
    uint8_t* const data = bytes_of(to.own);
    to.data = data;
    if (to.depth == to.K) {
      round_all(c.workers(), engine_, a.as<float>().data(), a.elements(), step, data);
      return step;
    }
    for (int64_t i = 0; i < to.rows; ++i) {
      round_all(c.workers(), engine_, a.as<float>().data() + i * to.K, to.K, step, data + i * to.depth);
      std::fill_n(data + i * to.depth + to.K, to.depth - to.K, uint8_t{0});
    }
    return step;
  }

  // Rows [first, first + count) of the result.
  Result<> multiply(RunContext& c, const LeftCodes& left, int64_t first, int64_t count, int32_t zero, float scale,
                    std::byte* out) const {
    const int64_t K = left.K, N = packed_.n;
    const int32_t x_zero = zero + (left.flip ? 128 : 0);
    const auto width = static_cast<int64_t>(zeros_.size());
    BOLIDE_TRY(Tensor offsets, c.scratch(DType::kI32, {width}));
    BOLIDE_TRY(Tensor scales, c.scratch(DType::kF32, {width}));
    BOLIDE_TRY(Tensor row_sums, c.scratch(DType::kI32, {needs_sums_ ? count : 0}));
    for (size_t i = 0; i < zeros_.size(); ++i) {
      const uint32_t sum = static_cast<uint32_t>(packed_.sums.as<int32_t>()[i]);
      const uint32_t all = static_cast<uint32_t>(K) * static_cast<uint32_t>(zeros_[i]);
      offsets.mutate<int32_t>()[i] = static_cast<int32_t>(static_cast<uint32_t>(x_zero) * (all - sum));
      scales.mutate<float>()[i] = scale * scales_[i];
    }
    const uint8_t* const data = left.data + first * left.depth;
    if (needs_sums_) {
      int32_t* const to = row_sums.mutate<int32_t>().data();
      parallel(c.workers(), count, std::max<int64_t>(1, kGrain / K), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          int32_t sum = 0;
          const uint8_t* row = data + i * left.depth;
          const uint8_t turned = left.flip ? 0x80 : 0;
          for (int64_t k = 0; k < K; ++k) sum += row[k] ^ turned;
          to[i] = sum;
        }
      });
    }
    Int8Job job;
    job.engine = &engine_, job.weights = &packed_;
    job.rows = count, job.taps = 1, job.quads = left.depth / 4, job.flip = left.flip;
    Int8Finish& f = job.finish;
    f.kind = kind_ == Kind::kSums ? Int8Finish::kSums : Int8Finish::kF32;
    f.offsets = offsets.as<int32_t>().data(), f.scales = scales.as<float>().data(), f.bias = bias_.data();
    if (needs_sums_) f.row_sums = row_sums.as<int32_t>().data(), f.column_zeros = zeros_.data();
    f.low = -std::numeric_limits<float>::infinity(), f.high = -f.low;
    f.out = out + first * N * 4, f.out_stride = N;
    BOLIDE_TRY(Tensor scratch, c.scratch(DType::kU8, {static_cast<int64_t>(job.scratch_bytes(c.workers().threads()))}));
    const auto point = [&](int64_t row0, int64_t rows, const uint8_t** to, int64_t) {
      for (int64_t i = 0; i < rows; ++i) to[i] = data + (row0 + i) * left.depth;
    };
    run_int8(job, point, bytes_of(scratch), c.workers());
    return {};
  }

  Kind kind_;
  bool needs_sums_ = false;
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

using IntegerKind = PreparedIntegerProduct::Kind;

Result<std::unique_ptr<PreparedOp>> integer_product(const PrepareContext& context, IntegerKind kind) {
  const Int8Engine* engine = int8_engine(context.device);
  const Tensor* b = context.constant(1);
  if (engine == nullptr || b == nullptr || b->rank() != 2 || !is_byte(*b) || b->elements() == 0) return nullptr;
  const int64_t N = b->dim(1);
  const auto fits = [&](size_t i, DType dtype) {
    const Tensor* t = context.constant(i);
    if (i == 0 || !context.has(i)) return true;
    return t != nullptr && t->dtype() == dtype && (t->elements() == 1 || (t->rank() == 1 && t->elements() == N));
  };
  // Inputs; 0: the op has none such.
  struct Places {
    size_t scale, zero, bias;
  };
  const Places at = kind == IntegerKind::kSums     ? Places{0, 3, 0}
                    : kind == IntegerKind::kFloats ? Places{3, 5, 6}
                                                   : Places{2, 3, 4};
  if (!fits(at.zero, b->dtype()) || !fits(at.scale, DType::kF32) || !fits(at.bias, DType::kF32) ||
      (at.scale != 0 && !context.has(at.scale)))
    return nullptr;
  const auto constant = [&](size_t i) { return i == 0 ? nullptr : context.constant(i); };
  auto prepared = std::make_unique<PreparedIntegerProduct>(*engine, kind);
  BOLIDE_TRY(prepared->pack(*b, constant(at.zero), constant(at.scale), constant(at.bias)));
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
  return integer_product(context, IntegerKind::kSums);
}
Result<std::unique_ptr<PreparedOp>> prepare_matmul_integer_to_float(const PrepareContext& context) {
  return integer_product(context, IntegerKind::kFloats);
}
Result<std::unique_ptr<PreparedOp>> prepare_dynamic_quantize_matmul(const PrepareContext& context) {
  return integer_product(context, IntegerKind::kDynamic);
}

}  // namespace bolide
