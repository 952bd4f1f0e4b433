#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/testing/harness.h"
#include "tensor/half.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Operand;

RopeSpec make_rope(RopeKind kind, int64_t rotary, std::mt19937_64& random) {
  RopeSpec rope{.kind = kind, .rotary_dim = rotary, .attention_factor = kind == RopeKind::kLong ? 1.19f : 1.f};
  rope.theta = 10000, rope.factor = 4, rope.original_context = 40;
  for (int64_t i = 0; i < rotary / 2; ++i) {
    rope.inv_freq.push_back(
        static_cast<float>(std::pow(10000., -2. * static_cast<double>(i) / static_cast<double>(rotary))));
    if (kind == RopeKind::kLong)
      rope.inv_freq_long.push_back(rope.inv_freq.back() / (1.f + static_cast<float>(random() % 100) / 20.f));
  }
  return rope;
}

// Straight from the definition, with the sequence's length.
double frequency(const RopeSpec& rope, size_t i, int64_t length) {
  if (length <= rope.original_context || rope.kind == RopeKind::kFixed) return rope.inv_freq[i];
  if (rope.kind == RopeKind::kLong) return rope.inv_freq_long[i];
  const double d = static_cast<double>(rope.rotary_dim), n = static_cast<double>(length);
  if (rope.rotary_dim == 2) return rope.inv_freq[i];
  const double base =
      rope.theta *
      std::pow(rope.factor * n / static_cast<double>(rope.original_context) - (rope.factor - 1), d / (d - 2));
  return static_cast<float>(std::pow(base, -2 * static_cast<double>(i) / d));
}

std::vector<double> rotated(std::span<const double> x, int64_t dim, const RopeSpec& rope, int64_t position,
                            int64_t length) {
  std::vector<double> out(x.begin(), x.end());
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t h = 0; h < static_cast<int64_t>(x.size()) / dim; ++h)
    for (int64_t i = 0; i < half; ++i) {
      const float angle =
          static_cast<float>(position) * static_cast<float>(frequency(rope, static_cast<size_t>(i), length));
      const double c = std::cos(static_cast<double>(angle)) * rope.attention_factor,
                   s = std::sin(static_cast<double>(angle)) * rope.attention_factor;
      const auto a = static_cast<size_t>(h * dim + i), b = static_cast<size_t>(h * dim + half + i);
      out[a] = x[a] * c - x[b] * s;
      out[b] = x[b] * c + x[a] * s;
    }
  return out;
}

struct Dims {
  int64_t tokens, heads, kv_heads, dim, rotary;
  RopeKind kind;
  DType pool;
  int32_t page;
};

// Two sequences, one shorter and one longer than the original context.
struct Batch {
  explicit Batch(const Dims& s, std::mt19937_64& random) : setup(s) {
    const auto first = static_cast<int32_t>(s.tokens / 2);
    cu = {0, first, static_cast<int32_t>(s.tokens)};
    rope_length = {30, 100};
    for (int32_t t = 0; t < s.tokens; ++t) positions.push_back(t == 0 ? 131071 : static_cast<int32_t>(random() % 4000));
    blocks = static_cast<int32_t>(s.tokens / s.page + 3);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < int64_t{blocks} * s.page; ++i) all.push_back(i);
    std::shuffle(all.begin(), all.end(), random);
    slots.assign(all.begin(), all.begin() + s.tokens);
    if (s.tokens > 2) slots[2] = -1;
    const auto bytes = static_cast<size_t>(blocks * s.kv_heads * s.page * s.dim * bits_of(s.pool) / 8);
    k.resize(bytes), v.resize(bytes);
    layers = {KvLayer{}, KvLayer{k.data(), v.data()}};
    inputs.cu_tokens = cu.data(), inputs.rope_length = rope_length.data(), inputs.slots = slots.data();
    inputs.sizes = {{s.tokens, 2, 1}};
    inputs.kv = {s.pool, s.page, static_cast<int32_t>(s.kv_heads), static_cast<int32_t>(s.dim), layers};
  }
  Batch(const Batch&) = delete;
  size_t element(int64_t slot, int64_t g) const {
    return static_cast<size_t>(((slot / setup.page * setup.kv_heads + g) * setup.page + slot % setup.page) * setup.dim);
  }
  int64_t length(int64_t token) const { return rope_length[token < cu[1] ? 0 : 1]; }

  Dims setup;
  int32_t blocks = 0;
  std::vector<int32_t> cu, rope_length, positions;
  std::vector<int64_t> slots;
  std::vector<std::byte> k, v;
  std::vector<KvLayer> layers;
  BatchInputs inputs;
};

std::vector<double> row_of(const Operand& x, int64_t t) {
  std::vector<double> row;
  for (int64_t i = 0; i < x.shape[-1]; ++i) row.push_back(x.value(t, i));
  return row;
}

void check(const Dims& s, uint64_t seed, bool with_rope, DType activation = DType::kF32) {
  std::mt19937_64 random(seed);
  Batch batch(s, random);
  const RopeSpec rope = make_rope(s.kind, s.rotary, random);
  const ValueType q_type{activation, nullptr, {Symbol::kTokens, s.heads * s.dim}};
  const ValueType kv{activation, nullptr, {Symbol::kTokens, s.kv_heads * s.dim}};
  const ValueType ids = i32({Symbol::kTokens});
  Case c{.sizes = {{s.tokens, 2, 1}}, .seed = seed, .stride_padding = static_cast<int64_t>(seed % 2) * 9};
  if (with_rope) {
    c.name = "rope_kv_write";
    c.op = RopeKvWrite{1, s.heads, s.kv_heads, s.dim, rope};
    c.in = {q_type, kv, kv, ids};
    c.out = {q_type, order_edge()};
  } else {
    c.name = "kv_write";
    c.op = KvWrite{1, s.kv_heads, s.dim};
    c.in = {kv, kv};
    c.out = {order_edge()};
  }
  const size_t at = with_rope ? 1 : 0;
  const bool exact = s.pool == DType::kF8E4M3 && !with_rope;  // then all there is to see is the rounding
  testing::Hooks hooks;
  hooks.batch = &batch.inputs;
  hooks.fill = [&](std::vector<Operand>& in) {
    if (with_rope) in[3].set_ints(batch.positions);
    if (!exact || activation != DType::kF32) return;
    for (Operand& x : in) {  // some beyond what f8e4m3 holds
      std::vector<float> values = x.values;
      for (float& f : values) f *= 12;
      x.set_values(std::move(values));
    }
  };
  hooks.reset = [&] {
    std::fill(batch.k.begin(), batch.k.end(), std::byte{0xff});
    std::fill(batch.v.begin(), batch.v.end(), std::byte{0xff});
  };
  // Both pools widened to f32; what no token stored must still be NaN.
  hooks.extra = [&] {
    std::vector<float> all;
    for (const auto* pool : {&batch.k, &batch.v})
      for (size_t i = 0; i < pool->size(); i += static_cast<size_t>(bits_of(s.pool)) / 8)
        all.push_back(s.pool == DType::kF32    ? load_unaligned<float>(pool->data() + i)
                      : s.pool == DType::kBF16 ? bf16_to_f32(load_unaligned<uint16_t>(pool->data() + i))
                                               : f8e4m3_to_f32(load_unaligned<uint8_t>(pool->data() + i)));
    return all;
  };
  hooks.oracle = [&](const Case&, std::span<const Operand> in) {
    std::vector<double> q, pools(2 * batch.k.size() / static_cast<size_t>(bits_of(s.pool) / 8), NAN);
    for (int64_t t = 0; t < s.tokens; ++t) {
      const int64_t position = batch.positions[static_cast<size_t>(t)], slot = batch.slots[static_cast<size_t>(t)];
      std::vector<double> key = row_of(in[at], t);
      const std::vector<double> value = row_of(in[at + 1], t);
      if (with_rope) {
        const auto row = rotated(row_of(in[0], t), s.dim, rope, position, batch.length(t));
        q.insert(q.end(), row.begin(), row.end());
        key = rotated(key, s.dim, rope, position, batch.length(t));
      }
      for (int64_t g = 0; g < s.kv_heads && slot >= 0; ++g)
        for (int64_t d = 0; d < s.dim; ++d) {
          const size_t to = batch.element(slot, g) + static_cast<size_t>(d), from = static_cast<size_t>(g * s.dim + d);
          const auto stored = [&](double x) {
            return exact ? double{f8e4m3_to_f32(f32_to_f8e4m3(static_cast<float>(x)))} : x;
          };
          pools[to] = stored(key[from]);
          pools[pools.size() / 2 + to] = stored(value[from]);
        }
    }
    std::vector<std::vector<double>> all;
    if (with_rope) all.push_back(q);
    all.push_back({});
    all.push_back(pools);
    return all;
  };
  // f32: a product and an addition. bf16 pools: half a unit of the eighth bit, of outliers up to 80 times the root
  // mean square; BF16IsNearestEven is exact. f8e4m3: of the fourth bit.
  hooks.bound = [&](const Case&, const Kernel&) {
    if (exact) return Bound{0, 0};
    if (s.pool == DType::kF8E4M3) return Bound{0x1p-4, 4};
    return s.pool == DType::kF32 && activation == DType::kF32 ? Bound{3e-7, 1e-5} : Bound{4e-3, 0.4};
  };
  std::vector<std::string> ran;
  EXPECT_EQ("", testing::check_kernels(rope_kernels(), c, hooks, &ran))
      << "seed " << seed << " dim " << s.dim << " rotary " << s.rotary << " kind " << static_cast<int>(s.kind);
  EXPECT_FALSE(ran.empty());
}

TEST(Rope, WritesMatchTheOracle) {
  uint64_t seed = std::random_device{}();
  for (const RopeKind kind : {RopeKind::kFixed, RopeKind::kDynamic, RopeKind::kLong})
    for (const DType pool : {DType::kF32, DType::kBF16, DType::kF8E4M3})
      for (const auto& [dim, rotary] :
           {std::pair<int64_t, int64_t>{64, 64}, {80, 20}, {16, 2}, {96, 94}, {10, 6}, {128, 128}})
        for (const int64_t tokens : {1, 5, 90}) {
          check({tokens, 6, 2, dim, rotary, kind, pool, tokens % 2 == 0 ? 16 : 7}, seed++, true);
          check({tokens, 6, 2, dim, rotary, kind, pool, tokens % 2 == 0 ? 16 : 7}, seed++, false);
        }
}

// What only GPUs have: bf16 queries, keys and values.
TEST(Rope, BF16OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = std::random_device{}();
  for (const RopeKind kind : {RopeKind::kFixed, RopeKind::kDynamic, RopeKind::kLong})
    for (const DType pool : {DType::kF32, DType::kBF16, DType::kF8E4M3})
      for (const auto& [dim, rotary] : {std::pair<int64_t, int64_t>{64, 64}, {80, 20}, {10, 6}, {128, 128}, {256, 256}})
        for (const int64_t tokens : {37, 90})
          for (const bool with_rope : {true, false})
            check({tokens, 9, 3, dim, rotary, kind, pool, 16}, seed++, with_rope, DType::kBF16);
}

TEST(Rope, BF16IsNearestEven) {
  BOLIDE_CPU_ONLY();
  // Position 0 rotates by nothing: stored keys are the rounded inputs, exactly.
  std::mt19937_64 random(7);
  Dims s{4, 1, 1, 64, 64, RopeKind::kFixed, DType::kBF16, 4};
  for (const Kernel& kernel : rope_kernels()) {
    Batch batch(s, random);
    batch.slots = {0, 1, 2, 3};
    const Op op = KvWrite{1, 1, 64};
    const std::vector<ValueType> types = {f32({Symbol::kTokens, 64}), f32({Symbol::kTokens, 64})},
                                 none = {order_edge()};
    const DeviceInfo device = testing::this_machine(1);
    if (!kernel.supports(Problem{&op, types, none, {{4, 2, 1}}, &device})) continue;
    std::vector<float> values(256);
    for (float& f : values) f = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0xbfffffffu);
    values[0] = std::bit_cast<float>(0x3f808000u), values[1] = std::bit_cast<float>(0x3f818000u), values[2] = NAN,
    values[3] = INFINITY, values[4] = std::bit_cast<float>(0x7f7fffffu), values[5] = std::bit_cast<float>(0x7fffffffu);
    const TensorView in[] = {make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF32, {4, 64}),
                             make_view(reinterpret_cast<std::byte*>(values.data()), DType::kF32, {4, 64})};
    const TensorView out[] = {TensorView{}};
    Workers workers(1);
    const auto stream = testing::stream_over(workers);
    ASSERT_TRUE(kernel.launch(Launch{&op, in, out, {}, nullptr, &batch.inputs}, *stream));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto got = load_unaligned<uint16_t>(batch.k.data() + 2 * i), want = f32_to_bf16(values[i]);
      if (std::isnan(values[i])) {
        EXPECT_TRUE(std::isnan(bf16_to_f32(got))) << kernel.name;
      } else {
        EXPECT_EQ(got, want) << kernel.name << " " << values[i];
      }
    }
  }
}

TEST(Rope, RotationMatchesTheOracle) {
  uint64_t seed = std::random_device{}();
  for (const auto& [dim, rotary] : {std::pair<int64_t, int64_t>{64, 64}, {80, 32}, {34, 34}, {2, 2}, {256, 256}})
    for (const int64_t tokens : {1, 9, 200}) {
      std::mt19937_64 random(seed);
      Dims s{tokens, 3, 1, dim, rotary, RopeKind::kDynamic, DType::kF32, 8};
      Batch batch(s, random);
      const RopeSpec rope = make_rope(s.kind, rotary, random);
      const Case c{"rope", Rope{dim, rope},  {f32({Symbol::kTokens, 3 * dim}), i32({Symbol::kTokens})},
                   {},     {{tokens, 2, 1}}, seed++,
                   4};
      testing::Hooks hooks;
      hooks.batch = &batch.inputs;
      hooks.fill = [&](std::vector<Operand>& in) { in[1].set_ints(batch.positions); };
      hooks.bound = [](const Case&, const Kernel&) { return Bound{3e-7, 1e-5}; };
      hooks.oracle = [&](const Case&, std::span<const Operand> in) {
        std::vector<double> q;
        for (int64_t t = 0; t < tokens; ++t) {
          const auto row =
              rotated(row_of(in[0], t), dim, rope, batch.positions[static_cast<size_t>(t)], batch.length(t));
          q.insert(q.end(), row.begin(), row.end());
        }
        return std::vector<std::vector<double>>{q};
      };
      EXPECT_EQ("", testing::check_kernels(rope_kernels(), c, hooks)) << dim << " " << rotary << " seed " << seed;
    }
}

}  // namespace
}  // namespace bolide
