// DynamicQuantizeLSTM beside sums of integers written out.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "device/device.h"
#include "ops/prepared_op.h"
#include "ops/run_op_for_test.h"

namespace bolide {
namespace {

struct Codes {
  std::vector<int64_t> values;  // less the zero point
  double scale = 1;
};
Codes codes_of(const std::vector<float>& values) {
  float least = 0, most = 0;
  for (const float v : values) least = std::min(least, v), most = std::max(most, v);
  const float scale = most == least ? 1 : (most - least) / 255;
  const auto zero = static_cast<int64_t>(std::nearbyint(-least / scale));
  Codes codes{{}, static_cast<double>(scale)};
  for (const float v : values)
    codes.values.push_back(std::min<int64_t>(std::max<int64_t>(std::llrint(v / scale) + zero, 0), 255) - zero);
  return codes;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(DynamicQuantizeLstm, AgreesWithIntegers) {
  std::mt19937_64 random(std::random_device{}());
  std::normal_distribution<float> normal;
  const OpDef* def = find_op("com.microsoft", "DynamicQuantizeLSTM", 1);
  ASSERT_NE(def, nullptr);
  for (int round = 0; round < 20; ++round) {
    const auto number = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const int64_t T = number(1, 5), S = number(1, 3), I = number(1, 17), H = number(1, 19), D = number(1, 2), G = 4 * H;
    const bool by_column = random() % 2 != 0, is_signed = random() % 2 != 0;
    const DType dtype = is_signed ? DType::kI8 : DType::kU8;
    const auto floats = [&](const Shape& shape, float scale, float least = 0) {
      Tensor t = *Tensor::make(DType::kF32, shape);
      for (float& v : t.mutate<float>())
        v = least > 0 ? least + scale * std::abs(normal(random)) : scale * normal(random);
      return t;
    };
    const auto bytes = [&](const Shape& shape) {
      Tensor t = *Tensor::make(dtype, shape);
      for (size_t i = 0; i < t.bytes(); ++i) t.mutable_data()[i] = static_cast<std::byte>(random());
      return t;
    };
    const Shape of_scales = by_column ? Shape{D, G} : Shape{D};
    const std::vector<Tensor> in = {floats({T, S, I}, 1),
                                    bytes({D, I, G}),
                                    bytes({D, H, G}),
                                    floats({D, 2 * G}, 0.3F),
                                    Tensor(),
                                    floats({D, S, H}, 0.5F),
                                    floats({D, S, H}, 0.5F),
                                    Tensor(),
                                    floats(of_scales, 0.002F, 1e-4F),
                                    bytes(of_scales),
                                    floats(of_scales, 0.002F, 1e-4F),
                                    bytes(of_scales)};
    const auto weight = [&](size_t input, int64_t d, int64_t i, int64_t j) {
      const auto code = [&](const Tensor& t, int64_t at) -> int64_t {
        return is_signed ? t.as<int8_t>()[static_cast<size_t>(at)] : t.as<uint8_t>()[static_cast<size_t>(at)];
      };
      const size_t scale = input == 1 ? 8 : 10;
      const int64_t at = by_column ? d * G + j : d;
      const int64_t whole = code(in[input], (d * in[input].dim(1) + i) * G + j) - code(in[scale + 1], at);
      return std::pair{whole, static_cast<double>(in[scale].as<float>()[static_cast<size_t>(at)])};
    };
    const auto list = [](const Tensor& t) { return std::vector<float>(t.as<float>().begin(), t.as<float>().end()); };
    const Codes x = codes_of(list(in[0]));
    std::vector<double> want(static_cast<size_t>(T * D * S * H));
    for (int64_t d = 0; d < D; ++d) {
      std::vector<float> h(in[5].as<float>().begin() + d * S * H, in[5].as<float>().begin() + (d + 1) * S * H);
      std::vector<float> c(in[6].as<float>().begin() + d * S * H, in[6].as<float>().begin() + (d + 1) * S * H);
      for (int64_t k = 0; k < T; ++k) {
        const int64_t t = d == 1 ? T - 1 - k : k;
        const Codes state = codes_of(h);
        for (int64_t s = 0; s < S; ++s)
          for (int64_t j = 0; j < H; ++j) {
            const auto gate = [&](int64_t g) {
              const int64_t column = g * H + j;
              int64_t from_x = 0, from_h = 0;
              double scale_x = 1, scale_h = 1;
              for (int64_t i = 0; i < I; ++i) {
                const auto [whole, scale] = weight(1, d, i, column);
                from_x += whole * x.values[static_cast<size_t>((t * S + s) * I + i)], scale_x = scale;
              }
              for (int64_t i = 0; i < H; ++i) {
                const auto [whole, scale] = weight(2, d, i, column);
                from_h += whole * state.values[static_cast<size_t>(s * H + i)], scale_h = scale;
              }
              const float* bias = in[3].as<float>().data() + d * 2 * G + column;
              return static_cast<double>(from_x) * scale_x * x.scale +
                     static_cast<double>(from_h) * scale_h * state.scale + static_cast<double>(bias[0]) +
                     static_cast<double>(bias[G]);
            };
            const auto at = static_cast<size_t>(s * H + j);
            const double cell = sigmoid(gate(2)) * static_cast<double>(c[at]) + sigmoid(gate(0)) * std::tanh(gate(3));
            c[at] = static_cast<float>(cell);
            want[static_cast<size_t>(((t * D + d) * S + s) * H + j)] = sigmoid(gate(1)) * std::tanh(cell);
          }
        for (int64_t i = 0; i < S * H; ++i)
          h[static_cast<size_t>(i)] = static_cast<float>(want[static_cast<size_t>((t * D + d) * S * H + i)]);
      }
    }
    Attributes attributes;
    attributes.set("hidden_size", H);
    attributes.set("direction", std::string(D == 2 ? "bidirectional" : "forward"));
    Workers workers(2);
    const auto device = *make_cpu_device(2, std::nullopt);
    const std::vector<AnyValue> values(in.begin(), in.end());
    std::vector<const AnyValue*> given, constants(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      given.push_back(in[i] ? &values[i] : nullptr);
      constants[i] = i > 0 ? given[i] : nullptr;
    }
    const auto prepared = def->prepare({.attributes = attributes,
                                        .constants = constants,
                                        .outputs = 3,
                                        .device = device->info(),
                                        .workers = workers,
                                        .present = 0xf6f});
    ASSERT_TRUE(prepared) << prepared.error().text;
    ASSERT_NE(*prepared, nullptr);
    for (const bool prepare : {false, true}) {
      std::vector<AnyValue> out(3);
      const auto no_body = [](std::string_view, std::vector<AnyValue>) -> Result<std::vector<AnyValue>> {
        return error(Code::kNotFound, "has no graph");
      };
      RunContext context(attributes, 1, given, out, workers, heap_pool(), no_body);
      if (prepare) {
        const auto ran = (*prepared)->run(context);
        ASSERT_TRUE(ran && *ran);
      } else {
        const auto ran = def->run(context);
        ASSERT_TRUE(ran) << ran.error().text;
      }
      const Tensor& y = *out[0].tensor();
      ASSERT_EQ(y.shape(), (Shape{T, D, S, H}));
      // A state that lies between two codes may fall to either.
      double difference = 0, norm = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        const double one = static_cast<double>(y.as<float>()[i]) - want[i];
        difference += one * one, norm += want[i] * want[i];
      }
      EXPECT_LT(std::sqrt(difference / norm), 5e-3) << "T " << T << " S " << S << " I " << I << " H " << H;
    }
  }
}

TEST(DynamicQuantizeLstm, RefusesWhatDoesNotFit) {
  const Tensor x = *Tensor::make(DType::kF32, {1, 1, 2}), w = *Tensor::make(DType::kI8, {1, 2, 4});
  const Tensor r = *Tensor::make(DType::kI8, {1, 1, 4}), scale = *Tensor::make(DType::kF32, {1});
  const Tensor zero = *Tensor::make(DType::kI8, {1}), three = *Tensor::make(DType::kF32, {3});
  const auto run = [&](const std::vector<Tensor>& in) {
    const OpDef* def = find_op("com.microsoft", "DynamicQuantizeLSTM", 1);
    const std::vector<AnyValue> values(in.begin(), in.end());
    std::vector<const AnyValue*> given;
    for (size_t i = 0; i < in.size(); ++i) given.push_back(in[i] ? &values[i] : nullptr);
    std::vector<AnyValue> out(1);
    Workers workers(1);
    Attributes attributes;
    const auto no_body = [](std::string_view, std::vector<AnyValue>) -> Result<std::vector<AnyValue>> {
      return error(Code::kNotFound, "has no graph");
    };
    RunContext context(attributes, 1, given, out, workers, heap_pool(), no_body);
    const auto ran = def->run(context);
    return ran ? std::string() : ran.error().text;
  };
  const Tensor none;
  EXPECT_EQ(run({x, w, r, none, none, none, none, none, scale, zero, scale, zero}), "");
  EXPECT_NE(run({x, w, r, none, none, none, none, none, three, zero, scale, zero}).find("the scale of weights"),
            std::string::npos);
  EXPECT_NE(run({x, w, r, none, none, none, none, none, scale, scale, scale, zero}).find("the zero point"),
            std::string::npos);
  EXPECT_NE(run({x, x, r, none, none, none, none, none, scale, zero, scale, zero}).find("expected three dims of i8"),
            std::string::npos);
  EXPECT_NE(run({x, r, r, none, none, none, none, none, scale, zero, scale, zero}).find("W"), std::string::npos);
  EXPECT_NE(run({w, w, r, none, none, none, none, none, scale, zero, scale, zero}).find("X is of i8"),
            std::string::npos);
}

}  // namespace
}  // namespace bolide
