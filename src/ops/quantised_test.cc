// QConv, QMatMul and their kin: rows beside what they are made ready as, on every level of the machine.
#include "ops/quantised.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/prepared_op.h"
#include "ops/run_op_for_test.h"

namespace bolide {
namespace {

struct Drawing {
  std::mt19937 random{std::random_device{}()};
  int64_t number(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return number(0, 1) == 1; }
  Tensor codes(DType dtype, const Shape& shape) {
    auto made = Tensor::make(dtype, shape);
    for (int64_t i = 0; i < made->elements(); ++i) made->mutable_data()[i] = static_cast<std::byte>(random());
    return *made;
  }
  Tensor zero(DType dtype) { return codes(dtype, {}); }
  Tensor scale(float least, float most) {
    return Tensor::scalar(DType::kF32, std::uniform_real_distribution<float>(least, most)(random));
  }
  Tensor scales(int64_t n, float least, float most) {
    auto made = Tensor::make(DType::kF32, {n});
    for (float& v : made->mutate<float>()) v = std::uniform_real_distribution<float>(least, most)(random);
    return *made;
  }
  Tensor bias(int64_t n) {
    auto made = Tensor::make(DType::kI32, {n});
    for (int32_t& v : made->mutate<int32_t>()) v = static_cast<int32_t>(number(-20000, 20000));
    return *made;
  }
  DType byte() { return coin() ? DType::kU8 : DType::kI8; }
};

std::vector<Isa> levels() {
  std::vector<Isa> list;
  for (const Isa isa : {Isa::kAvx2, Isa::kVnni, Isa::kAmx})
    if (best_isa(detect_cpu()) >= isa) list.push_back(isa);
  return list;
}

// False: nothing was prepared, or it refused. Codes may differ by `tolerance`.
bool compare(std::string_view domain, std::string_view name, const std::vector<Tensor>& inputs,
             const std::vector<NamedAttribute>& attributes, const std::vector<size_t>& variable, Isa isa,
             int64_t version = 1, size_t outputs = 1, double tolerance = 0) {
  const OpDef* def = find_op(domain, name, version);
  if (def == nullptr || def->prepare == nullptr) return false;
  Attributes given;
  for (const auto& [key, value] : attributes) given.set(key, value);
  const std::vector<AnyValue> values(inputs.begin(), inputs.end());
  std::vector<const AnyValue*> in, constants(inputs.size());
  uint64_t present = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    in.push_back(inputs[i] ? &values[i] : nullptr);
    if (inputs[i]) present |= uint64_t{1} << i;
    if (std::find(variable.begin(), variable.end(), i) == variable.end()) constants[i] = in[i];
  }
  Workers workers(2);
  DeviceInfo device;
  device.cpu = detect_cpu();
  device.isa = isa;
  const auto prepared = def->prepare({.attributes = given,
                                      .version = version,
                                      .constants = constants,
                                      .outputs = outputs,
                                      .device = device,
                                      .workers = workers,
                                      .present = present});
  EXPECT_TRUE(prepared) << (prepared ? "" : prepared.error().text);
  if (!prepared || *prepared == nullptr) return false;
  std::vector<AnyValue> out(outputs);
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kInvalid, "no body");
  };
  RunContext context(given, version, in, out, workers, heap_pool(), no_body);
  const auto ran = (*prepared)->run(context);
  const auto expected = run_op(name, version, inputs, attributes, outputs, domain);
  EXPECT_TRUE(ran) << (ran ? "" : ran.error().text);
  EXPECT_TRUE(expected) << (expected ? "" : expected.error().text);
  if (!ran || !expected) return true;
  if (!*ran) return false;
  for (size_t k = 0; k < outputs; ++k) {
    const Tensor &got = *out[k].tensor(), &want = *(*expected)[k].tensor();
    EXPECT_EQ(got.shape(), want.shape());
    EXPECT_EQ(got.dtype(), want.dtype());
    if (got.shape() != want.shape() || got.dtype() != want.dtype()) return true;
    for (int64_t i = 0; i < want.elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      const auto value = [&](const Tensor& t) -> double {
        switch (t.dtype()) {
          case DType::kF32: return static_cast<double>(t.as<float>()[at]);
          case DType::kI32: return t.as<int32_t>()[at];
          case DType::kI8: return t.as<int8_t>()[at];
          default: return t.as<uint8_t>()[at];
        }
      };
      const double allowed = want.dtype() == DType::kF32 ? 1e-5 * (1 + std::abs(value(want))) : tolerance;
      EXPECT_NEAR(value(got), value(want), allowed)
          << name << " output " << k << " at " << i << " of " << to_string(want.shape());
      if (::testing::Test::HasFailure()) return true;
    }
  }
  return true;
}

// x, w, y and what may follow, in QuantisedInput's order.
std::vector<Tensor> parts(Drawing& draw, DType x_type, const Shape& x, DType w_type, const Shape& w, int64_t columns,
                          int64_t depth, bool codes) {
  const auto spread = static_cast<float>(1 / std::sqrt(static_cast<double>(depth)));
  std::vector<Tensor> in(kQuantisedInputs);
  in[kX] = draw.codes(x_type, x), in[kXScale] = draw.scale(0.01f, 0.1f), in[kXZero] = draw.zero(x_type);
  in[kW] = draw.codes(w_type, w);
  in[kWScale] = draw.coin() ? draw.scales(columns, 0.01f, 0.1f) : draw.scale(0.01f, 0.1f);
  if (draw.coin()) in[kBias] = draw.bias(columns);
  if (codes) {
    const DType y = draw.byte();
    in[kYScale] = draw.scale(0.1f / spread, 1 / spread), in[kYZero] = draw.zero(y);
  }
  return in;
}
void add_residual(Drawing& draw, std::vector<Tensor>& in, const Shape& shape) {
  const DType residual = draw.byte(), sum = draw.byte();
  in[kResidual] = draw.codes(residual, shape), in[kResidualScale] = draw.scale(0.5f, 2);
  in[kResidualZero] = draw.zero(residual);
  in[kSumScale] = draw.scale(0.5f, 2), in[kSumZero] = draw.zero(sum);
}

TEST(Quantised, ConvEqualsItsRow) {
  Drawing draw;
  int fast = 0;
  for (const Isa isa : levels())
    for (int i = 0; i < 60; ++i) {
      const bool depthwise = draw.number(0, 3) == 0;
      const int64_t groups = depthwise ? draw.number(2, 70) : draw.number(0, 4) == 0 ? 2 : 1;
      const int64_t each = depthwise ? 1 : draw.coin() ? 4 * draw.number(1, 9) : draw.number(1, 21);
      const int64_t M = depthwise ? groups : groups * draw.number(1, 70), C = groups * each;
      const int64_t kh = draw.number(1, 4), kw = draw.number(1, 4), dh = draw.number(1, 2), dw = draw.number(1, 2);
      const int64_t H = (kh - 1) * dh + draw.number(1, 8), W = (kw - 1) * dw + draw.number(1, 8);
      const int64_t N = draw.number(1, 2);
      const bool first = groups == 1 && each < 16 && draw.coin();
      std::vector<NamedAttribute> attributes = {
          {"group", groups},
          {"strides", std::vector<int64_t>{draw.number(1, 3), draw.number(1, 3)}},
          {"dilations", std::vector<int64_t>{dh, dw}},
          {"pads", std::vector<int64_t>{draw.number(0, 2), draw.number(0, 2), draw.number(0, 2), draw.number(0, 2)}}};
      if (first) attributes.emplace_back("x_channels_first", int64_t{1});
      const Shape x = first ? Shape{N, C, H, W} : Shape{N, H, W, C};
      auto in = parts(draw, draw.byte(), x, DType::kI8, {M, each, kh, kw}, M, each * kh * kw, draw.number(0, 4) != 0);
      if (in[kYScale] && draw.coin()) {
        const auto plain = run_op("QConv", 1, in, attributes, 1, "bolide");
        ASSERT_TRUE(plain) << plain.error().text;
        add_residual(draw, in, (*plain)[0].tensor()->shape());
      }
      if (in[kYScale] && in[kYZero].dtype() == DType::kU8 && draw.coin())
        attributes.emplace_back("minimum", draw.number(0, 100));
      const bool ran = compare("bolide", "QConv", in, attributes, {kX, kResidual}, isa);
      ASSERT_FALSE(HasFailure()) << to_string(x) << " " << M << " of " << groups;
      fast += ran ? 1 : 0;
      EXPECT_TRUE(ran || (!depthwise && each % 4 != 0 && groups > 1));
    }
  EXPECT_GT(fast, levels().empty() ? -1 : 20);
}

TEST(Quantised, MatMulEqualsItsRow) {
  Drawing draw;
  for (const Isa isa : levels())
    for (int i = 0; i < 60; ++i) {
      const int64_t M = draw.number(1, 60), N = draw.number(1, 150), K = draw.number(1, 90);
      const bool constant = draw.coin(), transposed = draw.coin();
      const int64_t batch = draw.number(1, 4);
      const DType w_type = draw.byte();
      Shape w = transposed ? Shape{N, K} : Shape{K, N};
      if (!constant) w = transposed ? Shape{batch, N, K} : Shape{batch, K, N};
      std::vector<NamedAttribute> attributes;
      if (transposed) attributes.emplace_back("transB", int64_t{1});
      auto in = parts(draw, draw.byte(), {batch, M, K}, w_type, w, N, K, draw.number(0, 3) != 0);
      if (w_type == DType::kU8 || draw.coin()) in[kWZero] = draw.zero(w_type);
      if (!constant) in[kWScale] = draw.scale(0.01f, 0.1f), in[kBias] = Tensor();
      if (constant && in[kYScale] && draw.coin()) add_residual(draw, in, draw.coin() ? Shape{N} : Shape{batch, M, N});
      std::vector<size_t> variable = {kX, kResidual};
      if (!constant) variable.push_back(kW);
      EXPECT_TRUE(compare("bolide", "QMatMul", in, attributes, variable, isa));
      ASSERT_FALSE(HasFailure()) << batch << " x " << M << " x " << K << " x " << N;
    }
}

TEST(Quantised, SmallOpsEqualTheirRows) {
  Drawing draw;
  for (const Isa isa : levels())
    for (int i = 0; i < 20; ++i) {
      const DType type = draw.byte();
      const Shape shape = {draw.number(1, 3), draw.number(1, 40), draw.number(1, 70)};
      EXPECT_TRUE(
          compare("bolide", "QLookUp", {draw.codes(type, shape), draw.codes(draw.byte(), {256})}, {}, {0}, isa));
      std::vector<Tensor> step = {Tensor(), draw.scale(0.01f, 0.1f), draw.zero(type)};
      step[0] = draw.codes(type, shape);
      EXPECT_TRUE(compare("", "DequantizeLinear", step, {}, {0}, isa, 13));
      const auto real = run_op("DequantizeLinear", 13, step);
      step[0] = *(*real)[0].tensor(), step[1] = draw.scale(0.02f, 0.2f);
      EXPECT_TRUE(compare("", "QuantizeLinear", step, {}, {0}, isa, 13));
      EXPECT_TRUE(compare("", "DynamicQuantizeLinear", {step[0]}, {}, {0}, isa, 11, 3));
      const Shape pooled = {draw.number(1, 3), draw.number(1, 9), draw.number(1, 9), draw.number(1, 300)};
      const std::vector<Tensor> pool = {draw.codes(type, pooled), draw.scale(0.02f, 0.2f), draw.zero(type),
                                        draw.scale(0.02f, 0.2f), draw.zero(type)};
      EXPECT_TRUE(compare("com.microsoft", "QLinearGlobalAveragePool", pool, {{"channels_last", int64_t{1}}}, {0}, isa,
                          1, 1, 1));  // a sum in f32 beside one in f64: a tie may fall otherwise
      const bool row = draw.coin();
      const std::vector<Tensor> sum = {draw.codes(type, shape), draw.scale(0.02f, 0.2f),
                                       draw.zero(type),         draw.codes(type, row ? Shape{1, 1, shape[2]} : shape),
                                       draw.scale(0.02f, 0.2f), draw.zero(type),
                                       draw.scale(0.02f, 0.2f), draw.zero(type)};
      EXPECT_TRUE(compare("com.microsoft", "QLinearAdd", sum, {}, {0, 3}, isa, 1, 1, 1));  // fused multiply-adds
      const DType b_type = draw.byte();
      const int64_t K = 4 * draw.number(1, 30), N = draw.number(1, 150);
      const std::vector<Tensor> product = {draw.codes(type, {shape[0], shape[1], K}), draw.codes(b_type, {K, N}),
                                           draw.zero(type), draw.coin() ? draw.zero(b_type) : draw.codes(b_type, {N})};
      EXPECT_TRUE(compare("", "MatMulInteger", product, {}, {0, 2}, isa, 10));
      const std::vector<Tensor> floats = {product[0],
                                          product[1],
                                          draw.scale(0.02f, 0.2f),
                                          draw.coin() ? draw.scale(0.02f, 0.2f) : draw.scales(N, 0.02f, 0.2f),
                                          product[2],
                                          product[3],
                                          draw.coin() ? draw.scales(N, -1, 1) : Tensor()};
      EXPECT_TRUE(compare("com.microsoft", "MatMulIntegerToFloat", floats, {}, {0, 2, 4}, isa));
      ASSERT_FALSE(HasFailure()) << to_string(shape);
    }
}

TEST(Quantised, RowsRefuseWhatDoesNotFit) {
  Drawing draw;
  auto in = parts(draw, DType::kU8, {1, 4, 4, 3}, DType::kI8, {5, 2, 1, 1}, 5, 2, true);
  EXPECT_FALSE(run_op("QConv", 1, in, {}, 1, "bolide"));  // 3 channels for 2
  in = parts(draw, DType::kU8, {2, 3}, DType::kI8, {4, 5}, 5, 3, true);
  EXPECT_FALSE(run_op("QMatMul", 1, in, {}, 1, "bolide"));
  in = parts(draw, DType::kU8, {2, 4}, DType::kI8, {4, 5}, 5, 4, true);
  in[kX] = draw.codes(DType::kI8, {2, 4});
  EXPECT_FALSE(run_op("QMatMul", 1, in, {}, 1, "bolide"));  // the zero point is of another type
  in = parts(draw, DType::kU8, {2, 4}, DType::kI8, {4, 5}, 5, 4, true);
  in[kWScale] = draw.scales(3, 1, 2);
  EXPECT_FALSE(run_op("QMatMul", 1, in, {}, 1, "bolide"));
  EXPECT_FALSE(run_op("QLookUp", 1, {draw.codes(DType::kU8, {3}), draw.codes(DType::kU8, {255})}, {}, 1, "bolide"));
  EXPECT_FALSE(run_op("QMaxPool", 1, {draw.codes(DType::kU8, {3})}, {}, 1, "bolide"));
}

}  // namespace
}  // namespace bolide
