#include "kernels/act/act.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/testing/harness.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Operand;

double oracle_act(ActKind kind, double x) {
  const double pi = std::acos(-1.);
  switch (kind) {
    case ActKind::kSilu: return x >= 0 ? x / (1 + std::exp(-x)) : x * std::exp(x) / (1 + std::exp(x));
    case ActKind::kGelu: return x / 2 * std::erfc(-x / std::sqrt(2.));
    case ActKind::kGeluTanh: {
      const double y = std::sqrt(2 / pi) * (x + 0.044715 * std::pow(x, 3));
      return y < 0 ? x * std::exp(2 * y) / (1 + std::exp(2 * y)) : x / (1 + std::exp(-2 * y));
    }
    case ActKind::kRelu: return std::fmax(x, 0);
  }
  return NAN;
}

// Columns of both halves of a single input, or of two inputs.
std::vector<std::vector<double>> oracle(const Case& c, std::span<const Operand> in) {
  std::vector<double> out;
  const int64_t columns = in[0].shape[-1];
  for (int64_t t = 0; t < in[0].shape[0]; ++t) {
    if (const auto* gated = std::get_if<GatedAct>(&c.op)) {
      const int64_t n = in.size() == 2 ? columns : columns / 2;
      for (int64_t i = 0; i < n; ++i)
        out.push_back(oracle_act(gated->act, in[0].value(t, i)) *
                      (in.size() == 2 ? in[1].value(t, i) : in[0].value(t, n + i)));
    } else if (const auto* plain = std::get_if<Activate>(&c.op)) {
      for (int64_t i = 0; i < columns; ++i) out.push_back(oracle_act(plain->act, in[0].value(t, i)));
    } else {
      for (int64_t i = 0; i < columns; ++i) out.push_back(in[0].value(t, i) + in[1].value(t, i));
    }
  }
  return {out};
}

testing::Hooks hooks() {
  testing::Hooks h;
  h.oracle = oracle;
  // A few roundings of f32 each; outliers of the inputs make elements larger than the root mean square.
  h.bound = [](const Case&, const Kernel&) { return Bound{6e-7, 1e-5}; };
  return h;
}

constexpr ActKind kKinds[] = {ActKind::kSilu, ActKind::kGelu, ActKind::kGeluTanh, ActKind::kRelu};

TEST(Act, AllKernelsMatchTheOracle) {
  std::vector<std::string> ran;
  uint64_t seed = std::random_device{}();
  for (const int64_t tokens : {1, 3, 70})
    for (const int64_t width : {1, 7, 16, 33, 576}) {
      const SymbolValues sizes{{tokens, 1, 1}};
      const ValueType x = f32({Symbol::kTokens, width}), both = f32({Symbol::kTokens, 2 * width});
      for (const int64_t padding : {0, 5}) {
        SCOPED_TRACE(seed);
        for (const ActKind kind : kKinds) {
          EXPECT_EQ("",
                    testing::check_kernels(act_kernels(), Case{"two", GatedAct{kind}, {x, x}, {}, sizes, seed, padding},
                                           hooks(), &ran));
          EXPECT_EQ("", testing::check_kernels(act_kernels(),
                                               Case{"one", GatedAct{kind}, {both}, {}, sizes, seed, padding}, hooks()));
          EXPECT_EQ("", testing::check_kernels(act_kernels(),
                                               Case{"act", Activate{kind}, {x}, {}, sizes, seed, padding}, hooks()));
          ++seed;
        }
        EXPECT_EQ(
            "", testing::check_kernels(act_kernels(), Case{"add", Add{}, {x, x}, {}, sizes, seed++, padding}, hooks()));
      }
    }
  EXPECT_FALSE(ran.empty());
}

// What only GPUs have: bf16 operands and outputs.
TEST(Act, BF16OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  std::vector<std::string> ran;
  uint64_t seed = std::random_device{}();
  for (const DType x : {DType::kF32, DType::kBF16})
    for (const DType y : {DType::kF32, DType::kBF16})
      for (const DType to : {DType::kF32, DType::kBF16})
        for (const int64_t width : {1, 30, 576, 4096}) {
          const auto type = [&](DType dtype, int64_t columns) {
            return ValueType{dtype, nullptr, {Symbol::kTokens, columns}};
          };
          testing::Hooks h = hooks();
          // One rounding: 2^-9 of a value, and values reach some hundred times the root mean square.
          if (to == DType::kBF16) h.bound = [](const Case&, const Kernel&) { return Bound{4e-3, 0.5}; };
          const auto check = [&](Op op, std::vector<ValueType> in) {
            Case c{"bf16", std::move(op), std::move(in), {}, {{5, 1, 1}}, seed++, static_cast<int64_t>(seed % 2) * 4};
            c.out = {type(to, width)};
            EXPECT_EQ("", testing::check_kernels(act_kernels(), c, h, &ran));
          };
          for (const ActKind kind : kKinds) {
            check(GatedAct{kind}, {type(x, width), type(y, width)});
            check(GatedAct{kind}, {type(x, 2 * width)});
            check(Activate{kind}, {type(x, width)});
          }
          check(Add{}, {type(x, width), type(y, width)});
        }
  EXPECT_FALSE(ran.empty());
}

// Every activation over a sweep of magnitudes: the error of each element on its own.
TEST(Act, ErrorOfEachElement) {
  BOLIDE_CPU_ONLY();
  const int64_t count = 20000;
  for (const ActKind kind : kKinds)
    for (const Kernel& kernel : act_kernels()) {
      const Case c{"sweep", Activate{kind}, {f32({Symbol::kTokens, count})}, {}, {{1, 1, 1}}};
      const DeviceInfo device = testing::this_machine(1);
      const std::vector<ValueType> out = c.in;
      if (!kernel.supports(Problem{&c.op, c.in, out, c.sizes, &device})) continue;
      std::mt19937_64 random(1);
      std::vector<Operand> in = {testing::random_operand(c.in[0], c.sizes, false, random)};
      std::vector<float> x(count);
      const int64_t middle = count / 2;
      for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - middle) * 2e-3f;
      x[0] = -INFINITY, x[1] = NAN, x[2] = 0, x[3] = -0.f, x[4] = 1e-30f, x[5] = 3e38f, x[6] = -1e-38f, x[7] = -200;
      in[0].set_values(x);
      const std::vector<float> got = testing::run_once(kernel, c, in, 1)[0];
      EXPECT_TRUE(std::isnan(got[1])) << kernel.name;
      for (size_t i = 2; i < got.size(); ++i) {
        const double want = oracle_act(kind, x[i]);
        // GELU's tails: the rounding of the exponent counts, so the error is held against |x| there.
        const double tail = kind == ActKind::kGelu || kind == ActKind::kGeluTanh ? 4e-8 * std::fabs(x[i]) : 0;
        ASSERT_LE(std::fabs(got[i] - want), 3e-7 * std::fabs(want) + tail + 1e-37)
            << kernel.name << " act " << static_cast<int>(kind) << " at " << x[i] << ": " << got[i] << " for " << want;
      }
    }
}

}  // namespace
}  // namespace bolide
