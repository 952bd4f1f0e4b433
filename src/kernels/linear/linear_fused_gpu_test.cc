// Products with a norm in front, a gate or rotary embedding behind: in bolide_gpu_tests, since only GPUs have them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/linear/cublaslt_cuda.h"
#include "kernels/linear/rounding.h"
#include "kernels/registry.h"
#include "kernels/testing/harness.h"
#include "tensor/half.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Hooks;
using testing::Operand;
using Matrix = std::vector<double>;

struct Product {
  Linear op;
  int64_t tokens = 1, n = 8, k = 8;
  DType x = DType::kBF16, out = DType::kBF16, weight = DType::kBF16;
  const QuantScheme* quant = nullptr;  // else of the weight
  uint64_t seed = 1;
};

Case case_of(const Product& s) {
  Case c;
  c.op = s.op;
  const LinearInputs at = inputs_of(s.op);
  c.in.resize(static_cast<size_t>(at.count));
  c.in[0] = {s.x, nullptr, {Symbol::kTokens, s.k}};
  c.in[1] = {s.quant != nullptr ? s.quant->code : s.weight, s.quant, {s.n, s.k}};
  c.weights = {1};
  const auto vector = [&](int index, int64_t size) {
    if (index < 0) return;
    c.in[static_cast<size_t>(index)] = f32({size});
    c.weights.push_back(index);
  };
  vector(at.scale, s.n), vector(at.bias, s.n), vector(at.gain, s.k);
  if (at.residual >= 0) c.in[static_cast<size_t>(at.residual)] = {s.out, nullptr, {Symbol::kTokens, s.n}};
  c.out = {{s.out, nullptr, {Symbol::kTokens, s.op.gated ? s.n / 2 : s.n}}};
  c.sizes[Symbol::kTokens] = s.tokens;
  c.seed = s.seed;
  c.stride_padding = static_cast<int64_t>(s.seed % 3) * 8;
  c.name = fmt::format("T={} N={} K={} {} {}>{}{}{}{}{}{}{}", s.tokens, s.n, s.k, to_string(c.in[1]), to_string(s.x),
                       to_string(s.out), s.op.has_norm ? " norm" : "", s.op.has_scale ? " scale" : "",
                       s.op.has_bias ? " bias" : "", s.op.has_residual ? " residual" : "", s.op.gated ? " gated" : "",
                       s.op.rounding == InputRounding::kF8Token ? " f8_token" : "");
  return c;
}

// Scales like a checkpoint's: of a row for codes, of a norm for what makes results of about 1.
void fill(const Linear& op, int64_t k, std::vector<Operand>& in, std::mt19937_64& random) {
  const LinearInputs at = inputs_of(op);
  std::normal_distribution<float> normal;
  const auto set = [&](int index, float middle, float spread) {
    if (index < 0) return;
    std::vector<float> values = in[static_cast<size_t>(index)].values;
    for (float& value : values) value = middle * (1 + spread * normal(random));
    in[static_cast<size_t>(index)].set_values(values);
  };
  set(at.scale, 0.01f, 0.3f);
  set(at.gain, 1 / std::sqrt(static_cast<float>(k)), 0.3f);
}

// Rows that enter the product: normed in f64, then rounded as the op says, but for the rounding to bf16.
Matrix inputs(const Linear& op, std::span<const Operand> in) {
  const int64_t tokens = in[0].shape[0], k = in[0].shape[1];
  const LinearInputs at = inputs_of(op);
  Matrix out(static_cast<size_t>(tokens * k));
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t j = 0; j < k; ++j) squares += in[0].value(t, j) * in[0].value(t, j);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(k) + static_cast<double>(op.eps));
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t j = 0; j < k; ++j) {
      double value = in[0].value(t, j);
      if (op.has_norm)
        value *= scale * static_cast<double>(in[static_cast<size_t>(at.gain)].values[static_cast<size_t>(j)]);
      out[static_cast<size_t>(t * k + j)] = value;
      row[static_cast<size_t>(j)] = static_cast<float>(value);
    }
    if (op.rounding != InputRounding::kNone)
      round_token(Compute::kF32, op.rounding, row.data(), k, &out[static_cast<size_t>(t * k)]);
  }
  return out;
}

double activated(ActKind act, double x) {
  switch (act) {
    case ActKind::kSilu: return x / (1 + std::exp(-x));
    case ActKind::kGelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.));
    case ActKind::kGeluTanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActKind::kRelu: return std::max(x, 0.);
  }
  return NAN;
}

double slope(ActKind act, double x) {
  constexpr double kStep = 1e-4;
  return (activated(act, x + kStep) - activated(act, x - kStep)) / (2 * kStep);
}

// [T, N] before a gate.
Matrix product(const Linear& op, std::span<const Operand> in) {
  const Matrix x = inputs(op, in);
  const int64_t tokens = in[0].shape[0], k = in[0].shape[1], n = in[1].shape[0];
  const LinearInputs at = inputs_of(op);
  const auto vector = [&](int index, int64_t i, double absent) {
    return index < 0 ? absent : static_cast<double>(in[static_cast<size_t>(index)].values[static_cast<size_t>(i)]);
  };
  Matrix out(static_cast<size_t>(tokens * n));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += x[static_cast<size_t>(t * k + j)] * in[1].value(i, j);
      sum = sum * vector(at.scale, i, 1) + vector(at.bias, i, 0);
      if (at.residual >= 0) sum += in[static_cast<size_t>(at.residual)].value(t, i);
      out[static_cast<size_t>(t * n + i)] = sum;
    }
  return out;
}

// How large what is rounded on the way to each value of `product` is: terms one by one, each by its own size, and sums.
Matrix product_rounded(const Linear& op, std::span<const Operand> in, const Matrix& sums) {
  const Matrix x = inputs(op, in);
  const int64_t tokens = in[0].shape[0], k = in[0].shape[1], n = in[1].shape[0];
  const LinearInputs at = inputs_of(op);
  Matrix out(static_cast<size_t>(tokens * n));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < n; ++i) {
      double squares = 0;
      for (int64_t j = 0; j < k; ++j) squares += std::pow(x[static_cast<size_t>(t * k + j)] * in[1].value(i, j), 2);
      const double scale =
          at.scale < 0 ? 1 : static_cast<double>(in[static_cast<size_t>(at.scale)].values[static_cast<size_t>(i)]);
      const auto index = static_cast<size_t>(t * n + i);
      out[index] = std::hypot(std::sqrt(squares) * scale, sums[index]);
    }
  return out;
}

Matrix linear_rounded(const Linear& op, std::span<const Operand> in) {
  const Matrix sums = product(op, in), sizes = product_rounded(op, in, sums);
  if (!op.gated) return sizes;
  const int64_t n = in[1].shape[0], half = n / 2;
  Matrix out;
  for (int64_t t = 0; t < in[0].shape[0]; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const auto gate = static_cast<size_t>(t * n + i), up = gate + static_cast<size_t>(half);
      out.push_back(
          std::hypot(slope(op.act, sums[gate]) * sizes[gate] * sums[up], activated(op.act, sums[gate]) * sizes[up]));
    }
  return out;
}

Matrix linear(const Linear& op, std::span<const Operand> in) {
  Matrix all = product(op, in);
  if (!op.gated) return all;
  const int64_t n = in[1].shape[0], half = n / 2;
  Matrix out;
  for (int64_t t = 0; t < in[0].shape[0]; ++t)
    for (int64_t i = 0; i < half; ++i)
      out.push_back(activated(op.act, all[static_cast<size_t>(t * n + i)]) *
                    all[static_cast<size_t>(t * n + half + i)]);
  return out;
}

// Rounding to bf16 errs by 2^-9 of a value at most, by about 2^-10 on the average of many. It happens to a norm's
// result, to weights times their scale, to what a gate or rotary embedding is made of, and to a bf16 result. Largest
// errors are those of results that are many times the root mean square: 10 times, a product of two such 40 times, and
// as much where one token has all outliers.
// Without any of it, sums on tensor cores are left, whose terms are cut to 24 bits beside the largest of 16.
Bound bound_of(const Linear& op, DType weight, DType out, bool rope) {
  int roundings = 0;
  if (op.has_norm) ++roundings;
  if (op.has_scale || weight != DType::kBF16) ++roundings;
  if (op.rounding != InputRounding::kNone) ++roundings;
  if (op.gated) roundings += 2;
  if (rope) ++roundings;
  if (out == DType::kBF16) ++roundings;
  if (roundings == 0) return {2e-5, 4e-4};
  return {testing::kBF16Rounding * std::sqrt(roundings),
          testing::kBF16Rounding * (op.gated || rope ? 40 : 10) * roundings, testing::kBF16Rounding};
}

// Outputs of few elements say little about averages.
bool is_small(const Product& s) { return s.tokens * s.n < 512; }

std::string check(const Product& s, std::vector<std::string>* ran) {
  const Case c = case_of(s);
  std::mt19937_64 random(s.seed);
  Hooks hooks;
  hooks.fill = [&](std::vector<Operand>& in) { fill(s.op, s.k, in, random); };
  hooks.oracle = [&](const Case&, std::span<const Operand> in) { return std::vector<Matrix>{linear(s.op, in)}; };
  hooks.rounded = [&](const Case&, std::span<const Operand> in) {
    return std::vector<Matrix>{linear_rounded(s.op, in)};
  };
  hooks.bound = [&](const Case&, const Kernel&) {
    Bound bound = bound_of(s.op, s.quant != nullptr ? s.quant->code : s.weight, s.out, false);
    if (is_small(s)) bound.relative_l2 *= 3;
    return bound;
  };
  return testing::check_kernels({}, c, hooks, ran);
}

// What a checkpoint has beside bf16: codes of 8 bits with scales of rows, with and without rounding of x, and blocks.
struct Stored {
  DType dtype;
  const QuantScheme* quant = nullptr;
  bool scale = false, rounding = false;
};
constexpr Stored kStored[] = {{DType::kF8E4M3, nullptr, true, true},
                              {DType::kF8E4M3, nullptr, true, false},
                              {DType::kI8, nullptr, true, false},
                              {DType::kF8E4M3, nullptr, false, true},
                              {DType::kNone, &kW4_G128},
                              {DType::kNone, &kW4_G64},
                              {DType::kNone, &kW4_G32},
                              {DType::kNone, &kQ4_0},
                              {DType::kNone, &kQ4_1},
                              {DType::kNone, &kQ8_0},
                              {DType::kNone, &kQ5_K},
                              {DType::kNone, &kQ6_K},
                              {DType::kNone, &kQ4_K}};
void store_as(const Stored& stored, Product* s) {
  s->weight = stored.dtype, s->quant = stored.quant;
  s->op.has_scale = stored.scale;
  if (stored.rounding) s->op.rounding = InputRounding::kF8Token;
}

constexpr int64_t kTokens[] = {1, 2, 3, 5, 8, 16, 17, 33, 64, 129, 300};
constexpr int64_t kWidths[] = {64, 192, 264, 1024};  // of K
constexpr int64_t kHeights[] = {64, 128, 328};       // of N

TEST(LinearFused, NormBiasResidual) {
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const int64_t tokens : kTokens)
    for (const bool norm : {false, true})
      for (const bool residual : {false, true}) {
        Product s{.tokens = tokens, .n = kHeights[seed % 3], .k = kWidths[seed % 4], .seed = seed};
        s.op = {.compute = Compute::kBF16, .has_bias = seed / 2 % 2 == 0, .has_residual = residual, .has_norm = norm};
        s.op.eps = norm ? 1e-5f : 0;
        if (norm) s.x = DType::kF32;
        s.out = residual || seed / 4 % 2 == 0 ? DType::kF32 : DType::kBF16;
        EXPECT_EQ(check(s, &ran), "");
        ++seed;
      }
  EXPECT_FALSE(ran.empty());
}

TEST(LinearFused, Gated) {
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const int64_t tokens : kTokens)
    for (const ActKind act : {ActKind::kSilu, ActKind::kGelu, ActKind::kGeluTanh, ActKind::kRelu}) {
      Product s{.tokens = tokens, .n = 2 * kHeights[seed % 3], .k = kWidths[seed % 4], .seed = seed};
      s.op = {.compute = Compute::kBF16, .has_bias = seed % 3 == 0, .has_norm = seed % 5 != 0};
      s.op.gated = true, s.op.act = act, s.op.eps = s.op.has_norm ? 1e-6f : 0;
      if (s.op.has_norm) s.x = DType::kF32;
      EXPECT_EQ(check(s, &ran), "");
      ++seed;
    }
  EXPECT_FALSE(ran.empty());
}

TEST(LinearFused, StoredTypes) {
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const int64_t tokens : kTokens)
    for (const Stored& stored : kStored) {
      const auto form = static_cast<int>(seed / 7 % 3);  // of an attention's output, of a gate, of neither
      constexpr int64_t kMultiples[] = {256, 512, 1280};
      Product s{.tokens = tokens, .n = 2 * kHeights[seed % 3], .k = kMultiples[seed / 3 % 3], .seed = seed};
      s.op = {.compute = Compute::kBF16, .has_bias = seed / 2 % 2 == 0, .has_residual = form == 0};
      s.op.has_norm = form == 1 || (form == 2 && seed % 5 != 0), s.op.eps = s.op.has_norm ? 1e-5f : 0;
      s.op.gated = form == 1;
      store_as(stored, &s);
      if (s.op.has_norm) s.x = DType::kF32;
      s.out = form == 0 || (form == 2 && seed / 4 % 2 == 0) ? DType::kF32 : DType::kBF16;
      EXPECT_EQ(check(s, &ran), "");
      ++seed;
    }
  EXPECT_FALSE(ran.empty());
}

// Slices of tokens give what all tokens at once give, whose results the tests above know.
TEST(LinearFused, SlicesOfTokens) {
  const auto find = [](std::span<const Kernel> kernels, std::string_view name) {
    return &*std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.name == name; });
  };
  const Kernel* whole = cuda_kernels().find("linear_cublaslt");
  ASSERT_NE(whole, nullptr);
  uint64_t seed = std::random_device{}();
  for (const int64_t tokens : {200, 300, 517}) {
    Product s{.tokens = tokens, .n = 512, .k = 192, .x = DType::kF32, .seed = seed++};
    s.op = {.compute = Compute::kBF16, .has_bias = true, .has_norm = true, .eps = 1e-5f, .gated = true};
    const Case c = case_of(s);
    std::mt19937_64 random(s.seed);
    std::vector<Operand> in;
    for (size_t i = 0; i < c.in.size(); ++i) in.push_back(testing::random_operand(c.in[i], c.sizes, i > 0, random));
    fill(s.op, s.k, in, random);
    const auto expected = testing::run_once(*whole, c, in, 1)[0];
    const auto got = testing::run_once(*find(cublaslt_cuda_kernels_sliced(), "linear_cublaslt_sliced"), c, in, 1)[0];
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
      norm += std::pow(static_cast<double>(expected[i]), 2);
    }
    EXPECT_LE(std::sqrt(error / norm), testing::kBF16Rounding) << c.name;
  }
}

RopeSpec random_rope(RopeKind kind, int64_t rotary, std::mt19937_64& random) {
  RopeSpec rope{.kind = kind, .rotary_dim = rotary, .attention_factor = kind == RopeKind::kLong ? 1.19f : 1.f};
  rope.factor = 4, rope.original_context = 40;
  for (int64_t i = 0; i < rotary / 2; ++i) {
    rope.inv_freq.push_back(
        static_cast<float>(std::pow(10000., -2. * static_cast<double>(i) / static_cast<double>(rotary))));
    if (kind == RopeKind::kLong)
      rope.inv_freq_long.push_back(rope.inv_freq.back() / (1.f + static_cast<float>(random() % 100) / 20.f));
  }
  return rope;
}

// By definition, for a sequence of this length.
double frequency(const RopeSpec& rope, int64_t i, int64_t length) {
  const auto at = static_cast<size_t>(i);
  if (rope.kind == RopeKind::kFixed || length <= rope.original_context) return static_cast<double>(rope.inv_freq[at]);
  if (rope.kind == RopeKind::kLong) return static_cast<double>(rope.inv_freq_long[at]);
  const auto dims = static_cast<double>(rope.rotary_dim);
  const double stretch =
      static_cast<double>(rope.factor) * static_cast<double>(length) / static_cast<double>(rope.original_context) -
      (static_cast<double>(rope.factor) - 1);
  return std::pow(static_cast<double>(rope.theta) * std::pow(stretch, dims / (dims - 2)),
                  -2 * static_cast<double>(i) / dims);
}

void rotate(double* head, const RopeSpec& rope, int64_t position, int64_t length) {
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    // The angle is f32 by definition: at far positions its rounding is visible.
    const float angle = static_cast<float>(position) * static_cast<float>(frequency(rope, i, length));
    const double c = std::cos(static_cast<double>(angle)) * static_cast<double>(rope.attention_factor),
                 s = std::sin(static_cast<double>(angle)) * static_cast<double>(rope.attention_factor);
    const double a = head[i], b = head[half + i];
    head[i] = a * c - b * s;
    head[half + i] = b * c + a * s;
  }
}

// What `rotate` is to values, to how large what is rounded of them is.
void rotate_rounded(double* head, const RopeSpec& rope, int64_t, int64_t) {
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i)
    head[i] = head[half + i] = std::hypot(head[i], head[half + i]) * static_cast<double>(rope.attention_factor);
}

// Two sequences, one shorter and one longer than the original context; the second half of the last has no slots.
struct QkvBatch {
  QkvBatch(const RopeKvWrite& rope, int64_t tokens, DType pool_dtype, std::mt19937_64& random)
      : op(rope), pool(pool_dtype) {
    cu = {0, static_cast<int32_t>(tokens / 2), static_cast<int32_t>(tokens)};
    std::vector<int64_t> all(static_cast<size_t>((tokens / kPage + 3) * kPage));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    std::shuffle(all.begin(), all.end(), random);
    for (int64_t t = 0; t < tokens; ++t) {
      positions.push_back(static_cast<int32_t>(random() % 4000));
      slots.push_back(tokens > 1 && t >= tokens - tokens / 4 ? -1 : all[static_cast<size_t>(t)]);
    }
    elements = all.size() * static_cast<size_t>(op.kv_heads * op.head_dim);
    k.resize(elements * bytes()), v.resize(elements * bytes());
    layers = {KvLayer{}, KvLayer{k.data(), v.data()}};
    inputs.cu_tokens = cu.data(), inputs.rope_length = rope_length.data(), inputs.slots = slots.data();
    inputs.sizes = {{tokens, 2, 1}};
    inputs.kv = {pool, kPage, static_cast<int32_t>(op.kv_heads), static_cast<int32_t>(op.head_dim), layers};
  }
  QkvBatch(const QkvBatch&) = delete;
  size_t bytes() const { return static_cast<size_t>(bits_of(pool)) / 8; }
  void clear() {
    for (auto* memory : {&k, &v}) std::fill(memory->begin(), memory->end(), std::byte{0xff});
  }
  std::vector<float> stored() const {
    std::vector<float> all;
    for (const auto* memory : {&k, &v})
      for (size_t i = 0; i < memory->size(); i += bytes())
        all.push_back(pool == DType::kF32 ? load_unaligned<float>(memory->data() + i)
                                          : bf16_to_f32(load_unaligned<uint16_t>(memory->data() + i)));
    return all;
  }
  size_t element(int64_t slot, int64_t g) const {
    return static_cast<size_t>(((slot / kPage * op.kv_heads + g) * kPage + slot % kPage) * op.head_dim);
  }

  static constexpr int32_t kPage = 16;
  RopeKvWrite op;
  DType pool;
  size_t elements = 0;
  std::vector<int32_t> cu, rope_length = {30, 100}, positions;
  std::vector<int64_t> slots;
  std::vector<std::byte> k, v;
  std::vector<KvLayer> layers;
  BatchInputs inputs;
};

// Rotated q, nothing for the order edge, then both pools; what no token stored is NaN.
std::vector<Matrix> qkv_rope(const QkvRope& op, const QkvBatch& batch, Matrix all, decltype(rotate)* turn) {
  const RopeKvWrite& rope = op.rope;
  const int64_t dim = rope.head_dim, n = (rope.heads + 2 * rope.kv_heads) * dim;
  const int64_t tokens = static_cast<int64_t>(all.size()) / n;
  Matrix q, pools(2 * batch.elements, NAN);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t slot = batch.slots[static_cast<size_t>(t)];
    double* row = all.data() + t * n;
    for (int64_t h = 0; h < rope.heads + rope.kv_heads; ++h)
      turn(row + h * dim, rope.rope, batch.positions[static_cast<size_t>(t)],
           batch.rope_length[t < batch.cu[1] ? 0 : 1]);
    q.insert(q.end(), row, row + rope.heads * dim);
    for (int64_t g = 0; g < rope.kv_heads && slot >= 0; ++g)
      for (int64_t d = 0; d < dim; ++d) {
        const size_t to = batch.element(slot, g) + static_cast<size_t>(d);
        pools[to] = row[(rope.heads + g) * dim + d];
        pools[batch.elements + to] = row[(rope.heads + rope.kv_heads + g) * dim + d];
      }
  }
  return {q, {}, pools};
}

TEST(LinearFused, QkvRope) {
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const int64_t tokens : kTokens)
    for (const auto& [dim, rotary] : {std::pair<int64_t, int64_t>{64, 64}, {96, 96}, {128, 128}, {80, 20}, {96, 64}}) {
      std::mt19937_64 random(seed);
      constexpr RopeKind kKinds[] = {RopeKind::kFixed, RopeKind::kDynamic, RopeKind::kLong};
      const int64_t kv_heads = seed % 2 == 0 ? 1 : 2, heads = kv_heads * std::array<int64_t, 3>{1, 3, 4}[seed % 3];
      QkvRope op;
      op.rope = {1, heads, kv_heads, dim, random_rope(kKinds[seed % 3], rotary, random)};
      op.linear = {.compute = Compute::kBF16, .has_bias = seed / 2 % 2 == 0, .has_norm = seed % 5 != 0};
      op.linear.eps = op.linear.has_norm ? 1e-5f : 0;
      const DType pool = seed % 7 == 0 ? DType::kF32 : DType::kBF16;
      QkvBatch batch(op.rope, tokens, pool, random);
      Product s{
          .op = op.linear, .tokens = tokens, .n = (heads + 2 * kv_heads) * dim, .k = kWidths[seed % 4], .seed = seed};
      if (op.linear.has_norm) s.x = DType::kF32;
      // f8 of few tokens, with a scale and nothing rounded: one kernel is reached by this and int8 alone.
      const bool f8 = tokens == 5 && dim == 64;
      if (seed % 3 == 1 || f8) {
        s.k = 256 * (1 + static_cast<int64_t>(seed / 3 % 4));
        store_as(kStored[f8 ? 1 : seed / 3 % std::size(kStored)], &s);
        op.linear = s.op;
      }
      Case c = case_of(s);
      c.op = op;
      c.in.push_back(i32({Symbol::kTokens}));
      c.out = {{DType::kBF16, nullptr, {Symbol::kTokens, heads * dim}}, order_edge()};
      c.sizes = batch.inputs.sizes;
      c.name += fmt::format(" H={} G={} D={} rotary {} {} pool {}", heads, kv_heads, dim, rotary,
                            enum_names(RopeKind{})[static_cast<size_t>(op.rope.rope.kind)], to_string(pool));
      Hooks hooks;
      hooks.batch = &batch.inputs;
      hooks.fill = [&](std::vector<Operand>& in) {
        fill(op.linear, s.k, in, random);
        in.back().set_ints(batch.positions);
      };
      hooks.reset = [&] { batch.clear(); };
      hooks.extra = [&] { return batch.stored(); };
      hooks.oracle = [&](const Case&, std::span<const Operand> in) {
        return qkv_rope(op, batch, product(op.linear, in.first(in.size() - 1)), rotate);
      };
      hooks.rounded = [&](const Case&, std::span<const Operand> in) {
        const auto inputs = in.first(in.size() - 1);
        return qkv_rope(op, batch, product_rounded(op.linear, inputs, product(op.linear, inputs)), rotate_rounded);
      };
      hooks.bound = [&](const Case&, const Kernel&) {
        Bound bound = bound_of(op.linear, s.quant != nullptr ? s.quant->code : s.weight, DType::kBF16, true);
        if (is_small(s)) bound.relative_l2 *= 3;
        return bound;
      };
      EXPECT_EQ(testing::check_kernels({}, c, hooks, &ran), "");
      ++seed;
    }
  EXPECT_FALSE(ran.empty());
}

}  // namespace
}  // namespace bolide
