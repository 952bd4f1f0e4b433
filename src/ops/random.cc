// Random numbers. Seeds give the same numbers in every run, those of numpy's classic generator where an op's numbers
// are uniform ones.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "ops/cast.h"
#include "ops/number.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace bolide {
namespace {

class Chance {
 public:
  explicit Chance(uint32_t seed) : engine_(seed) {}
  // [0, 1), 53 bits of it.
  double uniform() {
    const auto high = static_cast<double>(engine_() >> 5), low = static_cast<double>(engine_() >> 6);
    return (high * 0x1p26 + low) * 0x1p-53;
  }
  // Mean 0, deviation 1 (Box and Muller 1958).
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - uniform())), angle = 6.283185307179586 * uniform();
    spare_ = radius * std::sin(angle), has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  std::mt19937 engine_;
  double spare_ = 0;
  bool has_spare_ = false;
};

uint32_t fresh_seed() {
  static const uint32_t kFirst = std::random_device{}();
  static std::atomic<uint32_t> count{0};
  return kFirst + 0x9e3779b9u * ++count;
}

// An integer for Dropout, a number for all others: a whole one is that seed, of another the bits.
Result<Chance> chance_of(const RunContext& c) {
  const Attributes::Any* any = c.attributes().find("seed");
  if (any == nullptr) return Chance(fresh_seed());
  if (const auto* whole = std::get_if<int64_t>(any)) return Chance(static_cast<uint32_t>(*whole));
  BOLIDE_TRY(const float seed, c.attributes().number("seed", 0));
  if (seed >= 0 && seed < 0x1p32f && seed == std::floor(seed)) return Chance(static_cast<uint32_t>(seed));
  return Chance(std::bit_cast<uint32_t>(seed));
}

Result<DType> type_of(const RunContext& c, DType otherwise) {
  if (!c.attributes().has("dtype")) return otherwise;
  BOLIDE_TRY(const int64_t number, c.attributes().integer("dtype", 0));
  return dtype_of_number(number).context("attribute dtype");
}

// Output 0 of values that `draw` gives in order.
template <class F>
Result<> fill(RunContext& c, DType dtype, const Shape& shape, F draw) {
  if (dtype == DType::kString) return error(Code::kInvalid, "random numbers as strings");
  BOLIDE_TRY(Tensor * out, c.make(0, dtype, shape));
  std::array<double, 512> block;
  const auto step = static_cast<int64_t>(block.size());
  for (int64_t begin = 0; begin < out->elements(); begin += step) {
    const int64_t n = std::min(step, out->elements() - begin);
    for (int64_t i = 0; i < n; ++i) block[static_cast<size_t>(i)] = draw(begin + i);
    store(*out, begin, n, block.data());
  }
  return {};
}

// Of the attribute `shape`, or like input 0.
template <bool like, bool normal>
Result<> run_random(RunContext& c) {
  Shape shape;
  DType dtype = DType::kF32;
  if constexpr (like) {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    shape = x->shape(), dtype = x->dtype();
  } else {
    BOLIDE_TRY(const std::vector<int64_t> dims, c.attributes().integers("shape"));
    BOLIDE_TRY(shape, shape_of(dims));
  }
  BOLIDE_TRY(dtype, type_of(c, dtype));
  BOLIDE_TRY(const float first, c.attributes().number(normal ? "mean" : "low", 0));
  BOLIDE_TRY(const float second, c.attributes().number(normal ? "scale" : "high", 1));
  BOLIDE_TRY(Chance chance, chance_of(c));
  const double low = static_cast<double>(first), high = static_cast<double>(second);
  return fill(c, dtype, shape,
              [&](int64_t) { return normal ? low + high * chance.normal() : low + (high - low) * chance.uniform(); });
}

Result<> run_bernoulli(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(dispatch(kFloats, x->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  BOLIDE_TRY(const DType dtype, type_of(c, x->dtype()));
  BOLIDE_TRY(const Tensor p, cast(*x, DType::kF64, c.pool()));
  BOLIDE_TRY(Chance chance, chance_of(c));
  return fill(c, dtype, x->shape(),
              [&](int64_t i) { return chance.uniform() < p.as<double>()[static_cast<size_t>(i)] ? 1.0 : 0.0; });
}

// x [batch, classes] of logarithms of weights; out [batch, sample_size] of classes.
Result<> run_multinomial(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t samples, c.attributes().integer("sample_size", 1));
  BOLIDE_TRY(const DType dtype, type_of(c, DType::kI32));
  BOLIDE_TRY(Chance chance, chance_of(c));
  BOLIDE_TRY(dispatch(kFloats, x->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  if (x->rank() != 2 || samples < 0)
    return error(Code::kInvalid,
                 fmt::format("{} samples of {}: expected [batch, classes]", samples, to_string(x->shape())));
  if (dtype != DType::kI32 && dtype != DType::kI64)
    return error(Code::kInvalid, fmt::format("attribute dtype is {}, expected i32 or i64", to_string(dtype)));
  const int64_t classes = x->dim(1);
  if (classes == 0) return error(Code::kInvalid, "input 0 has no classes");
  std::vector<double> up_to(static_cast<size_t>(classes));
  int64_t prepared = -1;
  return fill(c, dtype, {x->dim(0), samples}, [&](int64_t i) {
    if (const int64_t row = i / samples; row != prepared) {
      prepared = row;
      load(*x, row * classes, classes, up_to.data());
      const double most = *std::max_element(up_to.begin(), up_to.end());
      double sum = 0;
      for (double& v : up_to) v = sum += std::exp(v - most);
    }
    const double at = chance.uniform() * up_to.back();
    const int64_t found = std::upper_bound(up_to.begin(), up_to.end(), at) - up_to.begin();
    return static_cast<double>(std::min(found, classes - 1));
  });
}

// Inference leaves x as it is, and so does every set before 12, whose `is_test` files do not set for it. The mask is
// bool since 10.
Result<> run_dropout(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  double ratio = 0.5;
  bool training = false;
  if (c.version() >= 12) {
    BOLIDE_TRY(ratio, c.number(1, 0.5));
    BOLIDE_TRY(const double mode, c.number(2, 0));
    training = mode != 0;
  }
  if (!(ratio >= 0 && ratio < 1)) return error(Code::kInvalid, fmt::format("ratio {}, expected one in [0, 1)", ratio));
  BOLIDE_TRY(dispatch(kFloats, x->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  const DType mask_type = c.version() < 10 ? x->dtype() : DType::kBool;
  BOLIDE_TRY(Tensor mask, c.scratch(mask_type, x->shape()));
  if (!training || ratio == 0) {
    const double one = 1;
    for (int64_t i = 0; c.outputs() > 1 && i < mask.elements(); ++i) store(mask, i, 1, &one);
    c.set(0, *x);
    c.set(1, std::move(mask));
    return {};
  }
  BOLIDE_TRY(Chance chance, chance_of(c));
  const auto kept = mask.mutate<uint8_t>();
  const double scale = 1 / (1 - ratio);
  BOLIDE_TRY(fill(c, x->dtype(), x->shape(), [&](int64_t i) {
    double v = 0;
    load(*x, i, 1, &v);
    const bool keep = chance.uniform() >= ratio;
    kept[static_cast<size_t>(i)] = keep ? 1 : 0;
    return keep ? v * scale : 0.0;
  }));
  c.set(1, std::move(mask));
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "RandomNormal", .run = run_random<false, true>, .pure = false},
    {.domain = "", .name = "RandomNormalLike", .run = run_random<true, true>, .pure = false},
    {.domain = "", .name = "RandomUniform", .run = run_random<false, false>, .pure = false},
    {.domain = "", .name = "RandomUniformLike", .run = run_random<true, false>, .pure = false},
    {.domain = "", .name = "Bernoulli", .since = 15, .run = run_bernoulli, .pure = false},
    {.domain = "", .name = "Multinomial", .since = 7, .run = run_multinomial, .pure = false},
    {.domain = "", .name = "Dropout", .run = run_dropout},
    {.domain = "", .name = "Dropout", .since = 12, .run = run_dropout, .pure = false},
};

}  // namespace

std::span<const OpDef> random_ops() { return kRows; }

}  // namespace bolide
