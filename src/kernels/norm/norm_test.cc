#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/testing/harness.h"
#include "tensor/half.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Operand;

void push_rms(std::span<const double> x, const Operand& weight, double eps, std::vector<double>& out) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back(x[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps) * weight.values[i]);
}

std::vector<std::vector<double>> oracle(const Case& c, std::span<const Operand> in) {
  std::vector<double> total, out;
  const int64_t columns = in[0].shape[-1];
  for (int64_t t = 0; t < in[0].shape[0]; ++t) {
    std::vector<double> row;
    for (int64_t i = 0; i < columns; ++i) row.push_back(in[0].value(t, i));
    if (const auto* rms = std::get_if<RmsNorm>(&c.op)) {
      const auto group = static_cast<size_t>(rms->group == 0 ? columns : rms->group);
      for (size_t i = 0; i < row.size(); i += group) push_rms(std::span(row).subspan(i, group), in[1], rms->eps, out);
    } else if (const auto* add = std::get_if<AddRmsNorm>(&c.op)) {
      // The sum is stored as f32 and the norm is that of the stored sum.
      for (int64_t i = 0; i < columns; ++i)
        row[static_cast<size_t>(i)] = static_cast<float>(in[0].value(t, i) + in[1].value(t, i));
      total.insert(total.end(), row.begin(), row.end());
      push_rms(row, in[2], add->eps, out);
    } else {
      const double eps = std::get<LayerNorm>(c.op).eps;
      double mean = 0, variance = 0;
      for (const double v : row) mean += v / static_cast<double>(columns);
      for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(columns);
      for (size_t i = 0; i < row.size(); ++i)
        out.push_back((row[i] - mean) / std::sqrt(variance + eps) * in[1].values[i] + in[2].values[i]);
    }
  }
  if (std::holds_alternative<AddRmsNorm>(c.op)) return {total, out};
  return {out};
}

testing::Hooks hooks() {
  testing::Hooks h;
  h.oracle = oracle;
  // Sums of up to 5000 f32 terms in at least 32 partial sums.
  h.bound = [](const Case&, const Kernel&) { return Bound{2e-6, 4e-5}; };
  return h;
}

TEST(Norm, AllKernelsMatchTheOracle) {
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const int64_t tokens : {1, 2, 130})
    for (const int64_t width : {2, 15, 16, 100, 576, 4097}) {
      if (tokens * width > 100000) continue;
      const SymbolValues sizes{{tokens, 1, 1}};
      const ValueType x = f32({Symbol::kTokens, width}), w = f32({width});
      for (const int64_t padding : {0, 3}) {
        SCOPED_TRACE(seed);
        EXPECT_EQ("", testing::check_kernels(norm_kernels(),
                                             Case{"rms", RmsNorm{1e-5f, 0}, {x, w}, {1}, sizes, seed++, padding},
                                             hooks(), &ran));
        EXPECT_EQ("", testing::check_kernels(norm_kernels(),
                                             Case{"add", AddRmsNorm{1e-6f}, {x, x, w}, {2}, sizes, seed++, padding},
                                             hooks(), &ran));
        // Two numbers can lie so close that their difference from the mean has few good bits.
        if (width < 10) continue;
        EXPECT_EQ("", testing::check_kernels(norm_kernels(),
                                             Case{"layer", LayerNorm{1e-5f}, {x, w, w}, {1, 2}, sizes, seed++, padding},
                                             hooks(), &ran));
      }
    }
  for (const int64_t group : {1, 8, 24, 64, 128})
    EXPECT_EQ("", testing::check_kernels(norm_kernels(),
                                         Case{"group",
                                              RmsNorm{1e-6f, group},
                                              {f32({Symbol::kTokens, 3 * group}), f32({group})},
                                              {1},
                                              {{40, 1, 1}},
                                              seed++},
                                         hooks(), &ran));
  EXPECT_FALSE(ran.empty());
}

// bf16 activations, which only GPUs have: the sum is stored as bf16, and the norm is that of the stored sum.
TEST(Norm, BF16OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = std::random_device{}();
  testing::Hooks h;
  h.oracle = [](const Case& c, std::span<const Operand> in) {
    const auto* add = std::get_if<AddRmsNorm>(&c.op);
    if (add == nullptr) return oracle(c, in);
    std::vector<Operand> sum{in[0], in[2]};
    for (size_t i = 0; i < sum[0].values.size(); ++i)
      sum[0].values[i] = bf16_to_f32(f32_to_bf16(in[0].values[i] + in[1].values[i]));
    Case norm = c;
    norm.op = RmsNorm{add->eps, 0};
    return std::vector<std::vector<double>>{{sum[0].values.begin(), sum[0].values.end()}, oracle(norm, sum)[0]};
  };
  // One rounding of the result; values reach 150 times the root mean square.
  h.bound = [](const Case&, const Kernel&) { return Bound{testing::kBF16Rounding + 1e-5, 0.4}; };
  std::vector<std::string> ran;
  for (const int64_t tokens : {1, 5, 130})
    for (const int64_t width : {2, 15, 64, 576, 4096, 8200, 16384}) {
      if (tokens * width > 200000) continue;
      const ValueType x{DType::kBF16, nullptr, {Symbol::kTokens, width}}, w = f32({width});
      for (const int64_t padding : {0, 3, 8}) {
        SCOPED_TRACE(seed);
        const auto check = [&](const char* name, Op op, std::vector<ValueType> in, std::vector<int> weights,
                               size_t outs) {
          Case c{name, std::move(op), std::move(in), std::move(weights), {{tokens, 1, 1}}, seed++, padding};
          c.out.assign(outs, x);
          EXPECT_EQ("", testing::check_kernels(norm_kernels(), c, h, &ran));
        };
        check("rms", RmsNorm{1e-5f, 0}, {x, w}, {1}, 1);
        check("add", AddRmsNorm{1e-6f}, {x, x, w}, {2}, 2);
        if (width >= 10) check("layer", LayerNorm{1e-5f}, {x, w, w}, {1, 2}, 1);
      }
    }
  EXPECT_FALSE(ran.empty());
}

// A residual stream of f32 between bf16 products, and the other way round.
TEST(Norm, MixedOnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const DType from : {DType::kF32, DType::kBF16}) {
    const DType to = from == DType::kF32 ? DType::kBF16 : DType::kF32;
    testing::Hooks h = hooks();
    if (to == DType::kBF16)
      h.bound = [](const Case&, const Kernel&) { return Bound{testing::kBF16Rounding + 1e-5, 0.4}; };
    for (const int64_t width : {15, 576, 4096})
      for (const int64_t padding : {0, 3, 8}) {
        const auto type = [&](DType dtype) { return ValueType{dtype, nullptr, {Symbol::kTokens, width}}; };
        const ValueType w = f32({width}), x = type(from), y = type(to), wide = type(DType::kF32);
        const auto check = [&](Op op, std::vector<ValueType> in, std::vector<int> weights, std::vector<ValueType> out) {
          Case c{"mixed", std::move(op), std::move(in), std::move(weights), {{5, 1, 1}}, seed++, padding};
          c.out = std::move(out);
          EXPECT_EQ("", testing::check_kernels(norm_kernels(), c, h, &ran));
        };
        check(RmsNorm{1e-5f, 0}, {x, w}, {1}, {y});
        check(LayerNorm{1e-5f}, {x, w, w}, {1, 2}, {y});
        check(AddRmsNorm{1e-6f}, {x, wide, w}, {2}, {wide, y});
      }
  }
  EXPECT_FALSE(ran.empty());
}

// A token's result does not depend on the tokens beside it.
TEST(Norm, RowsAreIndependent) {
  BOLIDE_CPU_ONLY();
  for (const Kernel& kernel : norm_kernels()) {
    const DeviceInfo here = testing::this_machine(2);
    const std::vector<ValueType> layer = {f32({Symbol::kTokens, 200}), f32({200}), f32({200})};
    const Op layer_norm = LayerNorm{1e-5f}, rms_norm = RmsNorm{1e-5f, 0};
    const bool is_layer = kernel.supports(Problem{&layer_norm, layer, std::span(layer).first(1), {{300, 1, 1}}, &here});
    const Op& op = is_layer ? layer_norm : rms_norm;
    Case many{"many", op, {f32({Symbol::kTokens, 200}), f32({200})}, {1}, {{300, 1, 1}}};
    if (is_layer) many.in = layer, many.weights = {1, 2};
    const DeviceInfo device = testing::this_machine(2);
    if (!kernel.supports(Problem{&op, many.in, many.in, many.sizes, &device})) continue;
    std::mt19937_64 random(3);
    std::vector<Operand> in;
    for (const ValueType& type : many.in) in.push_back(testing::random_operand(type, many.sizes, false, random));
    const auto all = testing::run_once(kernel, many, in, 2)[0];
    Case one = many;
    one.sizes = {{1, 1, 1}};
    std::vector<Operand> last = in;
    last[0] = testing::random_operand(one.in[0], one.sizes, false, random);
    last[0].set_values(std::vector<float>(in[0].values.end() - 200, in[0].values.end()));
    const auto alone = testing::run_once(kernel, one, last, 1)[0];
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.end() - 200)) << kernel.name;
  }
}

}  // namespace
}  // namespace bolide
