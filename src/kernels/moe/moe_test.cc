#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "kernels/linear/rounding.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/routing.h"
#include "kernels/testing/harness.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Hooks;
using testing::Operand;

struct Weights {
  DType dtype;
  const QuantScheme *gate_up, *down;
};

Case moe_case(const Weights& w, MoeFfn op, int64_t tokens, int64_t e, int64_t f, uint64_t seed) {
  const auto type = [&](const QuantScheme* quant, std::vector<Dim> dims) {
    return ValueType{quant != nullptr ? quant->code : w.dtype, quant, std::move(dims)};
  };
  Case c;
  c.op = op;
  c.in = {f32({Symbol::kTokens, e}), f32({op.experts, e}), type(w.gate_up, {op.experts, 2 * f, e}),
          type(w.down, {op.experts, e, f})};
  c.weights = {1, 2, 3};
  c.sizes[Symbol::kTokens] = tokens;
  c.seed = seed;
  c.name = fmt::format("T={} X={} top={} {} {}", tokens, op.experts, op.top_k, to_string(c.in[2]), to_string(c.in[3]));
  return c;
}

// Smaller inputs than N(0, 1): gate and up are products of K terms, which would saturate the activation.
void scale_down(std::vector<Operand>& in) {
  for (const size_t i : {size_t{0}, size_t{1}}) {
    std::vector<float> values = in[i].values;
    for (float& v : values) v *= 0.2f;
    in[i].set_values(values);
  }
}

// Written apart from the kernels: routing by sorting, products in f64.
std::vector<std::vector<double>> by_definition(const Case& c, std::span<const Operand> in) {
  const auto& op = std::get<MoeFfn>(c.op);
  const int64_t tokens = in[0].shape[0], e = in[0].shape[1], f = in[3].shape[2];
  std::vector<double> out(static_cast<size_t>(tokens * e));
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> p(static_cast<size_t>(op.experts)), x(static_cast<size_t>(e));
    double total = 0;
    for (int64_t i = 0; i < op.experts; ++i) {
      double score = 0;
      for (int64_t j = 0; j < e; ++j) score += in[0].value(t, j) * in[1].value(i, j);
      total += p[static_cast<size_t>(i)] = std::exp(score);
    }
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    order.resize(static_cast<size_t>(op.top_k));
    if (op.renormalise) {
      total = 0;
      for (const size_t i : order) total += p[i];
    }
    round_token(op.compute, InputRounding::kNone, in[0].values.data() + t * e, e, x.data());
    for (const size_t expert : order) {
      const auto at = static_cast<int64_t>(expert);
      std::vector<float> narrow(static_cast<size_t>(f));
      for (int64_t i = 0; i < f; ++i) {
        double gate = 0, up = 0;
        for (int64_t j = 0; j < e; ++j) {
          gate += x[static_cast<size_t>(j)] * in[2].value(at * 2 * f + i, j);
          up += x[static_cast<size_t>(j)] * in[2].value(at * 2 * f + f + i, j);
        }
        narrow[static_cast<size_t>(i)] = static_cast<float>(activate(op.act, gate) * up);
      }
      std::vector<double> hidden(static_cast<size_t>(f));
      round_token(op.compute, InputRounding::kNone, narrow.data(), f, hidden.data());
      for (int64_t i = 0; i < e; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < f; ++j) sum += hidden[static_cast<size_t>(j)] * in[3].value(at * e + i, j);
        out[static_cast<size_t>(t * e + i)] += p[expert] / total * sum;
      }
    }
  }
  return {out};
}

// f32 sums, an activation of a few units in the last place; with int8 or bf16 a hidden value at the edge of two codes
// may fall either way, which moves it by one step of its group (1/254 of its largest) or of bf16 (2^-8).
Bound bound(const Case& c, const Kernel&) {
  const auto& op = std::get<MoeFfn>(c.op);
  if (op.compute == Compute::kF32) return {5e-6, 1e-4};
  if (op.compute == Compute::kBF16 && c.in[2].dtype != DType::kBF16) return {1e-2, 8e-2};
  return {2e-3, 2e-2};
}

Hooks hooks() {
  Hooks h;
  h.oracle = by_definition;
  h.bound = bound;
  h.fill = scale_down;
  return h;
}

const Weights kWeights[] = {{DType::kF32, nullptr, nullptr}, {DType::kBF16, nullptr, nullptr},
                            {DType::kU4, &kQ4_0, &kQ4_0},    {DType::kU4, &kQ4_1, &kQ8_0},
                            {DType::kU4, &kQ4_K, &kQ6_K},    {DType::kF16, nullptr, nullptr},
                            {DType::kU4, &kW4_G64, &kW4_G64}};

TEST(Moe, EveryWeightTypeAndTokenCount) {
  uint64_t seed = 1;
  std::map<std::string, int> ran;
  for (const Weights& w : kWeights)
    for (const Compute compute : {Compute::kF32, Compute::kBF16, Compute::kInt8}) {
      if (compute == Compute::kInt8 && w.gate_up == nullptr) continue;
      for (const int64_t tokens : {1, 3, 17}) {
        MoeFfn op{.experts = 5, .top_k = 1 + static_cast<int64_t>(seed % 3), .renormalise = seed % 2 == 0};
        op.compute = compute;
        op.act = static_cast<ActKind>(seed % 4);
        const int64_t step = w.gate_up != nullptr ? w.gate_up->block_elements : 1;
        std::vector<std::string> names;
        EXPECT_EQ(
            check_kernels(moe_kernels(), moe_case(w, op, tokens, step == 1 ? 45 : step, step == 1 ? 27 : step, seed),
                          hooks(), &names),
            "");
        for (const std::string& name : names) ++ran[name];
        ++seed;
      }
    }
  for (const auto& [name, count] : ran) fmt::print("  {}: {} cases\n", name, count);
}

// What only GPUs have: bf16 activations; more tokens than are worked on at once, many experts.
TEST(Moe, OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = 1;
  std::vector<std::string> ran;
  for (const Weights& w : kWeights)
    for (const Compute compute : {Compute::kF32, Compute::kBF16, Compute::kInt8}) {
      if (compute == Compute::kInt8 && w.gate_up == nullptr) continue;
      for (const auto& [tokens, experts, top_k] :
           {std::array<int64_t, 3>{1, 64, 8}, {70, 8, 2}, {130, 40, 6}, {5, 3, 3}}) {
        MoeFfn op{.experts = experts, .top_k = top_k, .renormalise = seed % 2 == 0};
        op.compute = compute;
        op.act = static_cast<ActKind>(seed % 4);
        const int64_t step = w.gate_up != nullptr ? w.gate_up->block_elements : 40;
        Case c = moe_case(w, op, tokens, step, step, seed);
        const DType activation = seed % 3 == 0 ? DType::kF32 : DType::kBF16;
        c.in[0].dtype = activation;
        c.out = {{seed / 3 % 2 == 0 ? DType::kF32 : DType::kBF16, nullptr, c.in[0].dims}};
        c.stride_padding = static_cast<int64_t>(seed % 2) * 4;
        Hooks h = hooks();
        h.fill = [](std::vector<Operand>& in) {  // scores of a few units: their rounding enters the weights
          std::vector<float> router = in[1].values;
          for (float& v : router) v *= 0.05f;
          in[1].set_values(router);
        };
        h.bound = [](const Case& cc, const Kernel& kernel) {
          Bound b = bound(cc, kernel);
          if (cc.out[0].dtype == DType::kBF16) b.relative_l2 += testing::kBF16Rounding, b.largest_error += 0.1;
          return b;
        };
        EXPECT_EQ(check_kernels(moe_kernels(), c, h, &ran), "");
        ++seed;
      }
    }
  EXPECT_FALSE(ran.empty());
}

TEST(Moe, BatchInvariant) {
  BOLIDE_CPU_ONLY();
  for (const Weights& w : kWeights) {
    const int64_t e = w.gate_up == &kQ4_K ? 256 : 64;
    for (const Compute compute : {Compute::kF32, Compute::kBF16, Compute::kInt8}) {
      MoeFfn op{.experts = 3, .top_k = 2};
      op.compute = compute;
      const Case all = moe_case(w, op, 11, e, e, 3);
      std::mt19937_64 random(7);
      std::vector<Operand> in;
      for (size_t i = 0; i < 4; ++i) in.push_back(testing::random_operand(all.in[i], all.sizes, i > 0, random));
      scale_down(in);
      for (const Kernel& kernel : moe_kernels()) {
        if (kernel.name == "moe_ref") continue;  // slow, and one token at a time by construction
        // Fewer than 8 tokens take FMA there; see linear/README.md.
        if (kernel.name == "moe_bf16_amx") continue;
        const DeviceInfo device = testing::this_machine(1);
        if (!kernel.supports({&all.op, all.in, {}, all.sizes, &device})) continue;
        const auto expected = testing::run_once(kernel, all, in, 2)[0];
        for (const int64_t tokens : {1, 5}) {
          const Case few = moe_case(w, op, tokens, e, e, 3);
          std::vector<Operand> part = in;
          part[0].shape = Shape{tokens, e};
          part[0].set_values({in[0].values.begin(), in[0].values.begin() + tokens * e});
          const auto got = testing::run_once(kernel, few, part, 2)[0];
          EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0) << kernel.name << " " << few.name;
        }
      }
    }
  }
}

TEST(Routing, TiesGoToTheLowerExpertAndWeightsSumToOne) {
  const MoeFfn op{.experts = 4, .top_k = 3};
  float scores[] = {1, 2, 2, 1}, weights[3];
  int32_t experts[3];
  choose_experts(op, scores, experts, weights);
  EXPECT_EQ(experts[0], 1);
  EXPECT_EQ(experts[1], 2);
  EXPECT_EQ(experts[2], 0);
  EXPECT_NEAR(weights[0] + weights[1] + weights[2], 1, 1e-6);
}

TEST(Routing, NanScoresStayInRange) {
  const MoeFfn op{.experts = 3, .top_k = 3};
  float scores[] = {NAN, NAN, NAN}, weights[3];
  int32_t experts[3];
  choose_experts(op, scores, experts, weights);
  for (const int32_t expert : experts) EXPECT_TRUE(expert >= 0 && expert < 3);
  EXPECT_TRUE(std::isnan(weights[0]));
}

TEST(Routing, RowActivationsMatchTheDefinition) {
  for (const ActKind kind : {ActKind::kSilu, ActKind::kGelu, ActKind::kGeluTanh, ActKind::kRelu})
    for (float x = -100; x < 100; x += 0.37f) {
      const float one = 1;
      float got;
      activate_row(kind, &x, &one, 1, &got);
      const double expected = activate(kind, static_cast<double>(x));
      EXPECT_NEAR(got, expected, 1e-6 * std::abs(expected) + 1e-6) << x;
    }
}

// What damaged weights give must come out as it is, to be refused when a token is chosen.
TEST(Routing, ActivationsOfNanAreNan) {
  for (const ActKind kind : {ActKind::kSilu, ActKind::kGelu, ActKind::kGeluTanh, ActKind::kRelu})
    for (const float x : {NAN, -NAN}) {
      const float one = 1;
      float got = 0;
      activate_row(kind, &x, &one, 1, &got);
      EXPECT_TRUE(std::isnan(got));
    }
}

}  // namespace
}  // namespace bolide
