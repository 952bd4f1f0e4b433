// Products on a GPU: convolutions, matrix products, attention.
#include <gtest/gtest.h>

#include "plan/testing/node_cases.h"

namespace bolide {
namespace {

using namespace test;

TEST_F(Networks, Convolutions) {
  for (int round = 0; round < 40; ++round) {
    const int64_t C = round % 4 == 0 ? draw.upto(4) : 8 * draw.upto(12),
                  M = draw.upto(2) == 1 ? 8 * draw.upto(16) : draw.upto(70);
    const int64_t R = draw.upto(4), S = draw.upto(4), stride = draw.upto(2), dilation = draw.upto(2);
    const int64_t H = R * dilation + draw.upto(20), W = S * dilation + draw.upto(20), pad = draw.upto(3) - 1;
    const float scale = 1 / std::sqrt(static_cast<float>(C * R * S));
    check({.domain = "",
           .name = "Conv",
           .in = {draw.floats({draw.upto(3), C, H, W}), draw.floats({M, C, R, S}, scale), draw.floats({M})},
           .is_constant = {false, true, true},
           .attributes = {{"strides", std::vector<int64_t>{stride, stride}},
                          {"dilations", std::vector<int64_t>{dilation, dilation}},
                          {"pads", std::vector<int64_t>{pad, pad, pad, pad}}},
           .then = round % 3 == 0   ? "Relu"
                   : round % 3 == 1 ? "Sigmoid"
                                    : ""});
  }
}

TEST_F(Networks, ConvolutionsOfGroups) {
  for (int round = 0; round < 12; ++round) {
    const int64_t groups = round % 2 == 0 ? 8 * draw.upto(6) : draw.upto(5), own = round % 2 == 0 ? 1 : draw.upto(5);
    const int64_t rows = round % 2 == 0 ? 1 : draw.upto(3);
    check({.domain = "",
           .name = "Conv",
           .in = {draw.floats({2, groups * own, 9, 11}), draw.floats({groups * rows, own, 3, 3}, 0.3f), Tensor()},
           .is_constant = {false, true, true},
           .attributes = {{"group", groups}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}}});
  }
}

TEST_F(Networks, Products) {
  for (int round = 0; round < 40; ++round) {
    const int64_t M = draw.upto(300), K = draw.upto(2) == 1 ? 8 * draw.upto(60) : draw.upto(200),
                  N = draw.upto(2) == 1 ? 8 * draw.upto(40) : draw.upto(200);
    const float scale = 1 / std::sqrt(static_cast<float>(K));
    check({.domain = "",
           .name = "MatMul",
           .in = {draw.floats({2, M, K}), draw.floats({K, N}, scale)},
           .is_constant = {false, round % 3 != 0},
           .then = round % 2 == 0 ? "Relu" : ""});
    check({.domain = "",
           .name = "Gemm",
           .in = {draw.floats({M, K}), draw.floats({N, K}, scale), draw.floats({N})},
           .is_constant = {false, true, true},
           .attributes = {{"transB", int64_t{1}}}});
    check({.domain = "",
           .name = "MatMul",
           .in = {draw.floats({3, M, K}), draw.floats({3, K, N}, scale)},
           .is_constant = {false, false}});
  }
}

TEST_F(Networks, Attention) {
  for (int round = 0; round < 16; ++round) {
    const int64_t B = draw.upto(3), H = 2 * draw.upto(3), G = round % 2 == 0 ? H : H / 2, S = draw.upto(150),
                  L = draw.upto(200);
    const int64_t D = round == 6       ? 200
                      : round % 3 == 0 ? draw.upto(90)
                                       : 8 * draw.upto(14),
                  Dv = round == 6       ? 250
                       : round % 3 == 0 ? draw.upto(90)
                                        : 8 * draw.upto(14);
    const bool bias = round % 2 == 0;
    check({.domain = "",
           .name = "Attention",
           .version = 23,
           .in = {draw.floats({B, H, S, D}), draw.floats({B, G, L, D}), draw.floats({B, G, L, Dv}),
                  bias ? draw.floats(round % 4 == 0 ? Shape{B, 1, 1, L} : Shape{S, L}) : Tensor()},
           .is_constant = {false, false, false, false},
           .attributes = {{"is_causal", int64_t{round % 4 == 1}}, {"softcap", round % 5 == 0 ? 20.f : 0.f}}});
  }
}

TEST_F(Networks, TransposedConvolutions) {
  for (int round = 0; round < 20; ++round) {
    const int64_t groups = round % 3 == 0 ? draw.upto(4) : 1, own = round % 2 == 0 ? 8 * draw.upto(4) : draw.upto(20),
                  channels = round % 4 < 2 ? 8 * draw.upto(6) : draw.upto(30);
    const int64_t R = draw.upto(4), S = draw.upto(4), stride = draw.upto(3), dilation = draw.upto(2);
    const int64_t pad = std::min(draw.upto(2) - 1, std::min(R, S) - 1);
    check({.domain = "",
           .name = "ConvTranspose",
           .in = {draw.floats({draw.upto(3), groups * channels, 1 + draw.upto(12), draw.upto(12)}),
                  draw.floats({groups * channels, own, R, S}, 1 / std::sqrt(static_cast<float>(channels))),
                  round % 5 == 0 ? Tensor() : draw.floats({groups * own})},
           .is_constant = {false, true, true},
           .attributes = {{"group", groups},
                          {"strides", std::vector<int64_t>{stride, draw.upto(2)}},
                          {"dilations", std::vector<int64_t>{dilation, 1}},
                          {"output_padding", std::vector<int64_t>{stride - 1, 0}},
                          {"pads", std::vector<int64_t>{pad, 0, pad, pad}}},
           .then = round % 2 == 0 ? "Relu" : ""});
  }
}

// What a convolution makes lies with its channels last: the same ops behind one.
TEST_F(Networks, BehindAConvolution) {
  for (int round = 0; round < 6; ++round) {
    const int64_t M = round % 2 == 0 ? 8 * draw.upto(6) : draw.upto(30);
    const Tensor x = draw.floats({2, 16, 12 + round, 40}), w = draw.floats({M, 16, 3, 3}, 0.1f);
    const auto floats = [&](int64_t n) { return draw.floats({n}); };
    const std::vector<float> scales{1, 1, 2, 1.5f};
    check_behind(x, w, {.domain = "", .name = "InstanceNormalization", .in = {Tensor(), floats(M), floats(M)}});
    check_behind(x, w, {.domain = "", .name = "LRN", .in = {Tensor()}, .attributes = {{"size", int64_t{5}}}});
    for (const char* mode : {"nearest", "linear", "cubic"})
      check_behind(x, w,
                   {.domain = "",
                    .name = "Resize",
                    .in = {Tensor(), Tensor(), Tensor::vector(DType::kF32, std::span<const float>(scales))},
                    .attributes = {{"mode", std::string(mode)}}});
    for (const char* mode : {"constant", "reflect", "edge", "wrap"})
      check_behind(x, w,
                   {.domain = "",
                    .name = "Pad",
                    .version = 19,
                    .in = {Tensor(), integers({0, 1, 2, 0, 0, 0, -1, 3})},
                    .attributes = {{"mode", std::string(mode)}}});
  }
}

// Products of f32 are as exact as sums of f32 are; those of tf32 only where they are asked for.
TEST_F(Networks, ProductsOfF32) {
  for (int round = 0; round < 8; ++round) {
    const bool large = round == 0;  // too large for products without tensor cores to be as fast
    const int64_t M = large ? 512 : draw.upto(300), N = large ? 384 : draw.upto(200),
                  K = large ? 1024 : 4 * draw.upto(400);
    const Tensor x = draw.floats({M, K}), w = draw.floats({K, N});
    Graph graph;
    const NodeId node = graph.add_general({find_op("", "MatMul", 13), 13, std::make_shared<const Attributes>()},
                                          {graph.add_input("x", {}), graph.add_constant("w", w)}, 1, "node", {});
    graph.add_output("y", graph.node(node).out[0]);
    Tensor want = *Tensor::make(DType::kF64, {M, N});
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < K; ++k)
          sum += static_cast<double>(x.as<float>()[static_cast<size_t>(m * K + k)]) *
                 static_cast<double>(w.as<float>()[static_cast<size_t>(k * N + n)]);
        want.mutate<double>()[static_cast<size_t>(m * N + n)] = sum;
      }
    double errors[2] = {};
    for (const bool tf32 : {false, true}) {
      auto network = DeviceNetwork::make(graph, *testing::tested_device(), {.tf32 = tf32, .skip_passes = {"all"}});
      ASSERT_TRUE(network);
      const auto got = (*network)->run({AnyValue(x)}, heap_pool(), nullptr, {});
      ASSERT_TRUE(got) << got.error().text;
      errors[tf32 ? 1 : 0] = relative(*(*got)[0].tensor(), want);
    }
    EXPECT_LE(errors[0], 3e-6) << M << " " << N << " " << K;
    EXPECT_LE(errors[1], 2e-3);
    if (large) {
      EXPECT_GT(errors[1], 20 * errors[0]);  // it is another arithmetic
    }
  }
}

}  // namespace
}  // namespace bolide
