// Prepared ops beside the rows' own kernels: random shapes, every level of instruction set, and inputs that neither
// may take.
#include "ops/prepared_op_for_test.h"

namespace bolide {
namespace {

TEST(Prepared, ConstantProducts) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 40; ++round) {
      const int64_t K = upto(random, 70), N = upto(random, 90), M = upto(random, 40);
      const DType compute = round % 4 == 0 ? DType::kBF16 : DType::kF32;
      const double tolerance = compute == DType::kBF16 ? 1e-2 : 3e-6;
      Case matmul{.domain = "", .name = "MatMul"};
      matmul.add(floats(random, round % 3 == 0 ? Shape{K} : round % 3 == 1 ? Shape{M, K} : Shape{2, M, K}));
      matmul.add(floats(random, {K, N}), true);
      EXPECT_TRUE(check(matmul, isa, tolerance, compute, 1));

      Case gemm{.domain = "com.microsoft", .name = "FusedGemm"};
      const bool turned = random() % 2 == 0;
      gemm.attributes.set("transB", int64_t{turned});
      gemm.attributes.set("activation", std::string(round % 2 == 0 ? "Relu" : "Tanh"));
      gemm.attributes.set("beta", round % 5 == 0 ? 1.0f : 0.5f);
      gemm.add(floats(random, {M, K}));
      gemm.add(floats(random, turned ? Shape{N, K} : Shape{K, N}), true);
      const Shape biases[] = {{N}, {1, N}, {1}, {}, {M, N}};
      const Shape& bias = biases[random() % 5];
      gemm.add(floats(random, bias), bias.rank < 2 || bias[0] == 1);
      const bool ran = check(gemm, isa, tolerance, compute, 1);
      EXPECT_TRUE(ran || bias == (Shape{M, N})) << to_string(bias);

      Case dense{.domain = "bolide", .name = "Dense", .version = 1};
      for (const std::string_view name : {"Gelu", "GeluTanh", "Silu", "Sigmoid", "HardSwish", ""})
        if (random() % 3 == 0) dense.attributes.set("activation", std::string(name));
      dense.add(floats(random, {2, M, K}));
      dense.add(floats(random, {K, N}), true);
      dense.add(random() % 2 == 0 ? AnyValue() : AnyValue(floats(random, {N})), true);
      if (random() % 2 == 0) dense.add(floats(random, {2, M, N}));
      EXPECT_TRUE(check(dense, isa, tolerance, compute, 1));
    }
}

TEST(Prepared, ProductsOfActivations) {
  Random random(std::random_device{}());
  const Shape outers[][2] = {{{}, {}}, {{3}, {3}}, {{2, 3}, {2, 3}}, {{2, 1}, {1, 3}}, {{2, 3}, {}}, {{3}, {2, 1}}};
  for (const Isa isa : levels())
    for (int round = 0; round < 60; ++round) {
      const auto& [a, b] = outers[round % 6];
      const int64_t K = upto(random, 70), N = upto(random, 90), M = upto(random, 40);
      const auto matrix = [](Shape outer, int64_t rows, int64_t columns) {
        outer.dims[static_cast<size_t>(outer.rank++)] = rows;
        outer.dims[static_cast<size_t>(outer.rank++)] = columns;
        return outer;
      };
      Case plain{.domain = "", .name = "MatMul"};
      plain.add(floats(random, matrix(a, M, K)));
      plain.add(floats(random, matrix(b, K, N)));
      EXPECT_TRUE(check(plain, isa, 3e-6, DType::kF32, 1));
      Case turned{.domain = "com.microsoft", .name = "FusedMatMul"};
      turned.attributes.set("transB", int64_t{1});
      turned.attributes.set("alpha", 0.125f);
      turned.add(floats(random, matrix(a, M, K)));
      turned.add(floats(random, matrix(b, N, K)));
      EXPECT_TRUE(check(turned, isa, 3e-6, DType::kF32, 0.125));
      turned.inputs[1] = floats(random, matrix(b, N, K + 1));
      EXPECT_FALSE(check(turned, isa, 3e-6));
    }
}

TEST(Prepared, Attention) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 50; ++round) {
      const int64_t B = upto(random, 2), G = upto(random, 2), H = G * upto(random, 3), S = upto(random, 60);
      const int64_t L = upto(random, 80), D = upto(random, 40), Dv = upto(random, 40);
      Case standard{.domain = "", .name = "Attention", .version = 23};
      const bool packed = random() % 2 == 0;
      if (packed) {
        standard.attributes.set("q_num_heads", H), standard.attributes.set("kv_num_heads", G);
        standard.add(floats(random, {B, S, H * D}));
        standard.add(floats(random, {B, L, G * D}));
        standard.add(floats(random, {B, L, G * Dv}));
      } else {
        standard.add(floats(random, {B, H, S, D}));
        standard.add(floats(random, {B, G, L, D}));
        standard.add(floats(random, {B, G, L, Dv}));
      }
      standard.attributes.set("is_causal", int64_t{random() % 2 == 0});
      const Shape masks[] = {{L},       {S, L},       {1, L},       {1, S, L},
                             {H, S, L}, {B, 1, 1, L}, {B, H, S, L}, {S, upto(random, L)}};
      if (round % 3 != 0) {
        const Shape& shape = masks[random() % 8];
        if (round % 3 == 1) {
          standard.add(floats(random, shape));
        } else {
          Tensor mask = *Tensor::make(DType::kBool, shape);
          for (uint8_t& shown : mask.mutate<uint8_t>()) shown = random() % 4 != 0;
          standard.add(mask);
        }
      }
      EXPECT_TRUE(check(standard, isa, 1e-5, DType::kF32, 1)) << B << " " << H << " " << G << " " << S << " " << L;

      const int64_t I = upto(random, 50), hidden = H * D, values = H * Dv;
      Case joined{.domain = "com.microsoft", .name = "Attention", .version = 1};
      joined.attributes.set("num_heads", H);
      joined.attributes.set("qkv_hidden_sizes", std::vector<int64_t>{hidden, hidden, values});
      joined.attributes.set("unidirectional", int64_t{random() % 2 == 0});
      joined.add(floats(random, {B, S, I}));
      // As wide as I, scores would be as large as rounding a softmax's argument shows in its results.
      Tensor weights = floats(random, {I, 2 * hidden + values});
      for (float& w : weights.mutate<float>()) w /= std::sqrt(static_cast<float>(I));
      joined.add(weights, true);
      joined.add(random() % 2 == 0 ? AnyValue() : AnyValue(floats(random, {2 * hidden + values})), true);
      if (round % 3 == 1) {
        Tensor shown = *Tensor::make(DType::kI32, random() % 2 == 0 ? Shape{B, S} : Shape{B, S, S});
        for (int32_t& one : shown.mutate<int32_t>()) one = random() % 4 != 0;
        joined.add(shown);
      } else if (round % 3 == 2) {
        joined.add({}), joined.add({});
        joined.add(
            floats(random, {random() % 2 == 0 ? 1 : B, random() % 2 == 0 ? 1 : H, random() % 2 == 0 ? 1 : S, S}));
      }
      EXPECT_TRUE(check(joined, isa, 1e-5, DType::kF32, 1));

      Case heads{.domain = "com.microsoft", .name = "MultiHeadAttention", .version = 1};
      heads.attributes.set("num_heads", H);
      heads.add(floats(random, {B, S, hidden}));
      heads.add(floats(random, {B, L, hidden}));
      heads.add(floats(random, {B, L, values}));
      if (random() % 2 == 0) heads.add(floats(random, {2 * hidden + values}));
      EXPECT_TRUE(check(heads, isa, 1e-5, DType::kF32, 1));
    }
}

TEST(Prepared, Rows) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 40; ++round) {
      const int64_t a = upto(random, 5), b = upto(random, 6), n = upto(random, 70);
      for (const std::string_view name : {"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Gelu", "Swish", "Erf", "Exp", "Abs",
                                          "Neg", "HardSigmoid", "HardSwish", "Softmax", "LogSoftmax"}) {
        Case c{.domain = "", .name = name, .version = name == "Swish" ? 24 : 21};
        c.add(floats(random, {a, b, n}));
        // Tails of functions that end at 0 are small differences.
        EXPECT_TRUE(check(c, isa, 2e-6, DType::kF32, name == "Softmax" ? 0 : 1)) << name;
      }
      for (const std::string_view name : {"Add", "Sub", "Mul", "Div", "Max", "Min"}) {
        const Shape shapes[] = {{a, b, n}, {n}, {1}, {a, 1, 1}, {b, 1}, {a, 1, n}, {b, n}, {}};
        Case c{.domain = "", .name = name};
        c.add(floats(random, shapes[random() % 8]));
        c.add(floats(random, shapes[random() % 8]));
        EXPECT_TRUE(check(c, isa, 1e-6));
      }
      for (const std::string_view name : {"Softmax", "LogSoftmax"}) {
        Case c{.domain = "", .name = name};
        c.attributes.set("axis", static_cast<int64_t>(random() % 3));
        c.add(floats(random, {a, b, n}));
        EXPECT_TRUE(check(c, isa, 2e-6));
      }
      Case clip{.domain = "", .name = "Clip"};
      clip.add(floats(random, {a, n}));
      clip.add(random() % 2 == 0 ? AnyValue() : AnyValue(Tensor::scalar(DType::kF32, -0.5f)), true);
      clip.add(Tensor::scalar(DType::kF32, 0.7f), true);
      EXPECT_TRUE(check(clip, isa, 0));
      Case gelu{.domain = "com.microsoft", .name = "BiasGelu", .version = 1};
      gelu.add(floats(random, {a, b, n})), gelu.add(floats(random, {n}));
      EXPECT_TRUE(check(gelu, isa, 2e-6, DType::kF32, 1));

      Case norm{.domain = "", .name = "LayerNormalization", .outputs = 1 + random() % 3};
      const bool two = random() % 2 == 0;
      norm.attributes.set("axis", int64_t{two ? 1 : -1});
      norm.add(floats(random, {a, b, n}));
      norm.add(floats(random, two ? Shape{b, n} : Shape{n}));
      if (random() % 2 == 0) norm.add(floats(random, two ? Shape{b, n} : Shape{n}));
      EXPECT_TRUE(check(norm, isa, 1e-4, DType::kF32, 0.1));  // means may cancel
      Case skip{.domain = "com.microsoft", .name = "SkipLayerNormalization", .version = 1};
      skip.outputs = random() % 2 == 0 ? 1 : 4;
      skip.attributes.set("epsilon", 1e-3f);
      skip.add(floats(random, {a, b, n})), skip.add(floats(random, {a, b, n}));
      skip.add(floats(random, {n})), skip.add(floats(random, {n}));
      if (random() % 2 == 0) skip.add(floats(random, {n}));
      EXPECT_TRUE(check(skip, isa, 1e-4, DType::kF32, 0.1));
    }
}

TEST(Prepared, TransposesAndReductions) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 80; ++round) {
      Shape shape;
      std::vector<int64_t> perm;
      for (int i = 0; i < 2 + round % 3; ++i) {
        shape.dims[static_cast<size_t>(shape.rank++)] = upto(random, i % 2 == 0 ? 20 : 40);
        perm.push_back(i);
      }
      std::shuffle(perm.begin(), perm.end(), random);
      Case turned{.domain = "", .name = "Transpose"};
      if (round % 5 != 0) turned.attributes.set("perm", perm);
      turned.add(floats(random, shape));
      EXPECT_TRUE(check(turned, isa, 0)) << to_string(shape);
      for (const std::string_view name : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
        Case c{.domain = "", .name = name};
        c.attributes.set("keepdims", static_cast<int64_t>(random() % 2));
        c.add(floats(random, shape));
        std::vector<int64_t> axes;
        for (int i = 1; i <= 1 + round % shape.rank; ++i) axes.push_back(random() % 2 == 0 ? -i : shape.rank - i);
        if (round % 7 != 0) c.add(Tensor::vector(DType::kI64, std::span<const int64_t>(axes)), true);
        // Far less than one element that is missing.
        const auto elements = static_cast<double>(shape.elements());
        const double unit = name == "ReduceSum" ? 4 : name == "ReduceMean" ? 4 / elements : 0;
        EXPECT_TRUE(check(c, isa, 1e-3, DType::kF32, unit)) << c.name << to_string(shape);
        if (shape.rank > 2 && round % 7 != 0) {
          axes = {0};
          c.inputs[1] = Tensor::vector(DType::kI64, std::span<const int64_t>(axes));
          EXPECT_FALSE(check(c, isa, 1e-5));
        }
      }
    }
}

TEST(Prepared, Recurrences) {
  Random random(std::random_device{}());
  for (const Isa isa : levels())
    for (int round = 0; round < 30; ++round) {
      const int64_t T = upto(random, 7), S = upto(random, 4), I = upto(random, 20), H = upto(random, 30);
      for (const bool lstm : {true, false}) {
        const int64_t gates = lstm ? 4 : 3, layout = static_cast<int64_t>(random() % 2);
        const std::string directions[] = {"forward", "reverse", "bidirectional"};
        const std::string& direction = directions[random() % 3];
        const int64_t D = direction == "bidirectional" ? 2 : 1;
        Case c{.domain = "", .name = lstm ? "LSTM" : "GRU", .version = 14, .outputs = 1 + random() % (lstm ? 3 : 2)};
        c.attributes.set("hidden_size", H), c.attributes.set("layout", layout);
        c.attributes.set("direction", direction);
        if (!lstm) c.attributes.set("linear_before_reset", static_cast<int64_t>(random() % 2));
        c.add(floats(random, layout != 0 ? Shape{S, T, I} : Shape{T, S, I}));
        c.add(floats(random, {D, gates * H, I}), true), c.add(floats(random, {D, gates * H, H}), true);
        c.add(random() % 2 == 0 ? AnyValue() : AnyValue(floats(random, {D, 2 * gates * H})), true);
        const Shape state = layout != 0 ? Shape{S, D, H} : Shape{D, S, H};
        if (random() % 2 == 0) {
          c.add({});
          c.add(floats(random, state));
          if (lstm) c.add(random() % 2 == 0 ? AnyValue() : AnyValue(floats(random, state)));
        }
        EXPECT_TRUE(check(c, isa, 1e-5, DType::kF32, 0.1)) << c.name << " " << direction;
      }
    }
}

TEST(Prepared, WhatDoesNotFitIsRefusedAsTheRowDoes) {
  Random random(1);
  for (const Isa isa : levels()) {
    for (const Shape& x : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 5}, Shape{2, 0, 5}, Shape{4, 5}, Shape{1, 4, 5}}) {
      for (const std::string_view name : {"MatMul", "Gemm"}) {
        Case c{.domain = "", .name = name};
        c.add(floats(random, x)), c.add(floats(random, {5, 4}), true);
        check(c, isa, 3e-6);
        c.inputs[0] = *Tensor::make(DType::kI32, x);
        check(c, isa, 3e-6);
      }
      Case dense{.domain = "bolide", .name = "Dense", .version = 1};
      dense.add(floats(random, x)), dense.add(floats(random, {5, 4}), true);
      dense.add({}), dense.add(floats(random, {4, 4}));
      check(dense, isa, 3e-6);
      Case joined{.domain = "com.microsoft", .name = "Attention", .version = 1};
      joined.attributes.set("num_heads", int64_t{2});
      joined.add(floats(random, x)), joined.add(floats(random, {5, 12}), true);
      check(joined, isa, 1e-5);
      for (const std::string_view name : {"Softmax", "LayerNormalization", "Add", "Relu"}) {
        Case c{.domain = "", .name = name};
        c.add(floats(random, x));
        if (name != "Softmax" && name != "Relu") c.add(floats(random, {5}));
        check(c, isa, 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace bolide
