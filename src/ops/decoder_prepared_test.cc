// What decoder files carry, prepared, beside the rows' own kernels: quantised products, attention with a past, rotary
// embedding.
#include "ops/prepared_op_for_test.h"

namespace bolide {
namespace {

bool coin(Random& random) { return random() % 2 == 0; }

Tensor bytes(Random& random, DType dtype, const Shape& shape) {
  Tensor tensor = *Tensor::make(dtype, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.mutable_data()[i] = static_cast<std::byte>(random());
  return tensor;
}
Tensor whole(std::vector<int64_t> values, const Shape& shape, DType dtype = DType::kI64) {
  Tensor tensor = *Tensor::make(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kI64)
      tensor.mutate<int64_t>()[i] = values[i];
    else
      tensor.mutate<int32_t>()[i] = static_cast<int32_t>(values[i]);
  }
  return tensor;
}

TEST(PreparedDecoder, BlocksOfCodes) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 60; ++round) {
      const bool int8 = coin(random);
      // Activations rounded to 8 bits in groups of 32 are off by at most sqrt(32) / 254 = 2.2 % of their norm, products
      // with them by about as much, if they are enough for a norm: a few may cancel, and be all error.
      const int64_t bits = random() % 3 == 0 ? 8 : 4, K = upto(random, coin(random) ? 50 : 400),
                    N = upto(random, 70) + (int8 ? 15 : 0);
      const int64_t block = std::max<int64_t>(int64_t{16} << random() % 6, bits == 8 ? 32 : 16);
      const int64_t blocks = (K + block - 1) / block;
      Case c{.domain = "com.microsoft", .name = "MatMulNBits", .version = 1};
      c.attributes.set("K", K), c.attributes.set("N", N);
      c.attributes.set("bits", bits), c.attributes.set("block_size", block);
      c.attributes.set("accuracy_level", int64_t{int8 ? 4 : 0});
      const int64_t M = upto(random, 20);
      c.add(floats(random, round % 3 == 0 ? Shape{K} : round % 3 == 1 ? Shape{M, K} : Shape{2, M, K}));
      c.add(bytes(random, DType::kU8, {N, blocks, block * bits / 8}), true);
      c.add(floats(random, {N * blocks}), true);
      c.add(coin(random) ? AnyValue() : AnyValue(bytes(random, DType::kU8, {N * ((blocks * bits + 7) / 8)})), true);
      if (coin(random)) c.add({}), c.add(floats(random, {N}), true);
      EXPECT_TRUE(check(c, isa, int8 ? 3e-2 : 1e-5, DType::kF32, std::sqrt(static_cast<double>(K))))
          << bits << " bits, block " << block << ", K " << K;
      c.inputs[0] = floats(random, {M, K + 1});
      EXPECT_FALSE(check(c, isa, 1));
      c.inputs[0] = bytes(random, DType::kI8, {M, K});
      EXPECT_FALSE(check(c, isa, 1));
    }
}

TEST(PreparedDecoder, DynamicProducts) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 40; ++round) {
      const int64_t K = upto(random, 90), N = upto(random, 90), M = upto(random, 30);
      const DType dtype = coin(random) ? DType::kI8 : DType::kU8;
      const Shape columns = coin(random) ? Shape{N} : Shape{1};
      Case c{.domain = "com.microsoft", .name = "DynamicQuantizeMatMul", .version = 1};
      c.add(floats(random, round % 3 == 0 ? Shape{K} : round % 3 == 1 ? Shape{M, K} : Shape{2, M, K}));
      c.add(bytes(random, dtype, {K, N}), true);
      c.add(floats(random, columns), true);
      c.add(coin(random) ? AnyValue() : AnyValue(bytes(random, dtype, columns)), true);
      if (coin(random)) c.add(floats(random, {N}), true);
      EXPECT_TRUE(check(c, isa, 1e-5, DType::kF32, 1)) << M << " " << K << " " << N;

      // Scales and zero points of A: one, or one a row.
      Case given{.domain = "com.microsoft", .name = "MatMulIntegerToFloat", .version = 1};
      const bool rows = coin(random);
      given.add(bytes(random, dtype, {M, K}));
      given.add(bytes(random, dtype, {K, N}), true);
      given.add(floats(random, rows ? Shape{M} : Shape{}));
      given.add(floats(random, columns), true);
      given.add(coin(random) ? AnyValue() : AnyValue(bytes(random, dtype, {})));
      given.add(coin(random) ? AnyValue() : AnyValue(bytes(random, dtype, columns)), true);
      EXPECT_TRUE(check(given, isa, 1e-5, DType::kF32, 1)) << M << " " << K << " " << N;
    }
}

TEST(PreparedDecoder, GroupQueryAttention) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 150; ++round) {
      const int64_t B = upto(random, 3), G = upto(random, 3), H = G * upto(random, 6), D = 2 * upto(random, 40);
      const int64_t S = round % 2 == 0 ? 1 : upto(random, 30);
      Case c{.domain = "com.microsoft", .name = "GroupQueryAttention", .version = 1, .outputs = 3};
      c.attributes.set("num_heads", H), c.attributes.set("kv_num_heads", G);
      const bool first = random() % 4 == 0;
      // A buffer that is full, one with room, or none.
      std::vector<int64_t> last;
      int64_t total = S, buffer = first ? (coin(random) ? 0 : upto(random, 40)) : 0;
      for (int64_t b = 0; b < B; ++b) {
        const int64_t past = first ? 0 : upto(random, 60);
        last.push_back(past + S - 1), total = std::max(total, past + S);
        if (!first) buffer = std::max(buffer, past);
      }
      if (!first && coin(random)) buffer += upto(random, 40);
      const bool packed = coin(random);
      if (packed) {
        c.add(floats(random, {B, S, (H + 2 * G) * D})), c.add({}), c.add({});
      } else {
        c.add(floats(random, {B, S, H * D}));
        c.add(floats(random, {B, S, G * D})), c.add(floats(random, {B, S, G * D}));
      }
      const bool has_past = !first || coin(random);
      for (int i = 0; i < 2; ++i) c.add(has_past ? AnyValue(floats(random, {B, G, buffer, D})) : AnyValue());
      c.add(whole(last, {B}, DType::kI32)), c.add(whole({total}, {1}, DType::kI32));
      if (coin(random)) {
        c.attributes.set("do_rotary", int64_t{1});
        c.attributes.set("rotary_interleaved", int64_t{coin(random)});
        const int64_t half = coin(random) ? D / 2 : upto(random, D / 2);
        for (int i = 0; i < 2; ++i) c.add(floats(random, {200, half}));
      }
      if (random() % 3 == 0) c.attributes.set("local_window_size", upto(random, 70));
      if (random() % 3 == 0) c.attributes.set("softcap", 2.5f);
      if (random() % 4 == 0) c.attributes.set("smooth_softmax", int64_t{1});
      if (random() % 4 == 0) c.attributes.set("causal", int64_t{0});
      if (coin(random)) c.attributes.set("scale", 0.3f);
      if (random() % 4 == 0) {
        while (c.inputs.size() < 10) c.add({});
        c.add(random() % 2 == 0 ? AnyValue()
                                : AnyValue(floats(random, {coin(random) ? 1 : B, coin(random) ? 1 : H, S, total})));
        c.add(coin(random) ? AnyValue() : AnyValue(floats(random, {H})));
      }
      EXPECT_TRUE(check(c, isa, 1e-5, DType::kF32, 1)) << "B " << B << " H " << H << " G " << G << " S " << S << " D "
                                                       << D << " total " << total << " buffer " << buffer;
    }
}

TEST(PreparedDecoder, CachesMayGrowInPlace) {
  Random random(std::random_device{}());
  const OpDef* def = find_op("com.microsoft", "GroupQueryAttention", 1);
  ASSERT_NE(def, nullptr);
  Workers workers(2);
  const int64_t H = 4, G = 2, D = 16, most = 40, past = 17;
  Case c{.domain = "com.microsoft", .name = "GroupQueryAttention", .version = 1, .outputs = 3};
  c.attributes.set("num_heads", H), c.attributes.set("kv_num_heads", G);
  c.add(floats(random, {1, 1, H * D})), c.add(floats(random, {1, 1, G * D})), c.add(floats(random, {1, 1, G * D}));
  c.add(floats(random, {1, G, most, D})), c.add(floats(random, {1, G, most, D}));
  c.add(whole({past}, {1}, DType::kI32)), c.add(whole({past + 1}, {1}, DType::kI32));
  const auto expected = run(c, nullptr, nullptr, false);
  ASSERT_TRUE(expected) << expected.error().text;
  const auto device = make_cpu_device(2, levels().back());
  auto prepared = def->prepare({.attributes = c.attributes,
                                .constants = {},
                                .outputs = 3,
                                .device = (*device)->info(),
                                .workers = workers,
                                .present = 0x7f});
  ASSERT_TRUE(prepared && *prepared != nullptr);
  std::vector<const AnyValue*> in;
  std::vector<OutputMemory> memories(3);
  for (const AnyValue& value : c.inputs) in.push_back(&value);
  for (size_t i = 1; i < 3; ++i) {
    auto* given = const_cast<std::byte*>(c.inputs[i + 2].tensor()->data());
    memories[i] = {given, c.inputs[i + 2].tensor()->bytes(), DType::kF32};
  }
  std::vector<AnyValue> out(3);
  const auto no_body = [](std::string_view, auto&&) -> Result<std::vector<AnyValue>> {
    return error(Code::kNotFound, "has no graph");
  };
  RunContext context(c.attributes, 1, in, out, workers, heap_pool(), no_body, nullptr, memories);
  const auto ran = (*prepared)->run(context);
  ASSERT_TRUE(ran && *ran);
  EXPECT_EQ(out[1].tensor()->data(), c.inputs[3].tensor()->data());
  for (size_t o = 0; o < 3; ++o)
    for (size_t i = 0; i < out[o].tensor()->as<float>().size(); ++i)
      ASSERT_NEAR(out[o].tensor()->as<float>()[i], (*expected)[o].tensor()->as<float>()[i], 1e-5f) << o << " " << i;
}

TEST(PreparedDecoder, AttentionWithAPast) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 80; ++round) {
      const int64_t B = upto(random, 2), G = upto(random, 2), H = G * upto(random, 4), D = upto(random, 40);
      const int64_t S = coin(random) ? 1 : upto(random, 30), P = random() % 4 == 0 ? 0 : upto(random, 50);
      const int64_t Dv = upto(random, 40);
      Case standard{.domain = "", .name = "Attention", .version = 23, .outputs = 3};
      const int64_t now = coin(random) ? S : upto(random, 20);
      if (coin(random)) {
        standard.attributes.set("q_num_heads", H), standard.attributes.set("kv_num_heads", G);
        standard.add(floats(random, {B, S, H * D}));
        standard.add(floats(random, {B, now, G * D})), standard.add(floats(random, {B, now, G * Dv}));
      } else {
        standard.add(floats(random, {B, H, S, D}));
        standard.add(floats(random, {B, G, now, D})), standard.add(floats(random, {B, G, now, Dv}));
      }
      standard.attributes.set("is_causal", int64_t{coin(random)});
      if (random() % 3 == 0) standard.attributes.set("softcap", 1.5f);
      if (random() % 3 == 0) standard.attributes.set("left_window_size", static_cast<int64_t>(random() % 30));
      if (random() % 3 == 0) standard.attributes.set("right_window_size", static_cast<int64_t>(random() % 5));
      standard.add(coin(random) ? AnyValue() : AnyValue(floats(random, {S, P + now})));
      if (random() % 4 != 0) {
        standard.add(floats(random, {B, G, P, D})), standard.add(floats(random, {B, G, P, Dv}));
      } else {
        standard.inputs[3] = {};
        if (coin(random)) {
          standard.version = 24, standard.outputs = 1;
          standard.add({}), standard.add({});
          std::vector<int64_t> valid;
          for (int64_t b = 0; b < B; ++b)
            valid.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(now + 1)));
          standard.add(whole(valid, {B}));
        }
      }
      EXPECT_TRUE(check(standard, isa, 1e-5, DType::kF32, 1))
          << B << " " << H << " " << G << " " << S << " " << P << " " << now;

      Case heads{
          .domain = "com.microsoft", .name = "MultiHeadAttention", .version = 1, .outputs = coin(random) ? 1u : 3u};
      heads.attributes.set("num_heads", H);
      heads.attributes.set("unidirectional", int64_t{coin(random)});
      heads.add(floats(random, {B, S, H * D}));
      const bool split = random() % 3 == 0;
      heads.add(floats(random, split ? Shape{B, H, now, D} : Shape{B, now, H * D}));
      heads.add(floats(random, split ? Shape{B, H, now, Dv} : Shape{B, now, H * Dv}));
      heads.add(coin(random) ? AnyValue() : AnyValue(floats(random, {2 * H * D + H * Dv})));
      heads.add({});
      heads.add(coin(random) ? AnyValue() : AnyValue(floats(random, {1, H, S, P + now})));
      heads.add(floats(random, {B, H, P, D})), heads.add(floats(random, {B, H, P, Dv}));
      EXPECT_TRUE(check(heads, isa, 1e-5, DType::kF32, 1))
          << (split ? "split " : "") << B << " " << H << " " << S << " " << P;

      const int64_t I = upto(random, 50), hidden = H * D;
      Case joined{.domain = "com.microsoft", .name = "Attention", .version = 1, .outputs = 2};
      joined.attributes.set("num_heads", H);
      joined.attributes.set("unidirectional", int64_t{coin(random)});
      joined.add(floats(random, {B, S, I}));
      // As wide as I, scores would be as large as rounding a softmax's argument shows in its results.
      Tensor weights = floats(random, {I, 3 * hidden});
      for (float& w : weights.mutate<float>()) w /= std::sqrt(static_cast<float>(I));
      joined.add(weights, true);
      joined.add(coin(random) ? AnyValue() : AnyValue(floats(random, {3 * hidden})), true);
      joined.add({});
      joined.add(coin(random) ? AnyValue() : AnyValue(floats(random, {2, B, H, P, D})));
      EXPECT_TRUE(check(joined, isa, 1e-5, DType::kF32, 1));
    }
}

TEST(PreparedDecoder, RotaryEmbedding) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 60; ++round) {
      const int64_t B = upto(random, 3), H = upto(random, 4), S = upto(random, 20), D = 2 * upto(random, 40);
      const int64_t half = coin(random) ? D / 2 : upto(random, D / 2), rows = S + 30;
      const bool split = coin(random), partial = half != D / 2;
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < B * S; ++i)
        positions.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(rows)));
      const Tensor x = floats(random, split ? Shape{B, H, S, D} : Shape{B, S, H * D});
      Case theirs{.domain = "com.microsoft", .name = "RotaryEmbedding", .version = 1};
      theirs.attributes.set("interleaved", int64_t{coin(random)});
      if (partial || coin(random)) theirs.attributes.set("num_heads", H);
      if (partial) theirs.attributes.set("rotary_embedding_dim", 2 * half);
      theirs.add(x);
      theirs.add(coin(random) ? whole({7}, {1}) : whole(positions, {B, S}));
      theirs.add(floats(random, {rows, half})), theirs.add(floats(random, {rows, half}));
      EXPECT_TRUE(check(theirs, isa, 1e-6)) << to_string(x.shape()) << " " << half;

      Case standard{.domain = "", .name = "RotaryEmbedding", .version = 23};
      standard.attributes.set("interleaved", int64_t{coin(random)});
      standard.attributes.set("num_heads", H);
      if (partial) standard.attributes.set("rotary_embedding_dim", 2 * half);
      standard.add(x);
      const bool listed = coin(random);
      for (int i = 0; i < 2; ++i) standard.add(floats(random, listed ? Shape{rows, half} : Shape{B, S, half}));
      if (listed) standard.add(whole(positions, {B, S}));
      EXPECT_TRUE(check(standard, isa, 1e-6)) << to_string(x.shape()) << " " << half;
    }
}

}  // namespace
}  // namespace bolide
