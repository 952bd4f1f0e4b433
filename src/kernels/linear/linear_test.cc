#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "kernels/linear/amx_emulation.h"
#include "kernels/linear/engines.h"
#include "kernels/linear/float_strips.h"
#include "kernels/linear/int8_kernels.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/product.h"
#include "kernels/linear/rounding.h"
#include "kernels/linear/strips.h"
#include "kernels/registry.h"
#include "kernels/testing/harness.h"
#include "tensor/half.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Hooks;
using testing::Operand;

struct Weight {
  DType dtype;
  const QuantScheme* quant;
};

ValueType weight_type(const Weight& w, int64_t n, int64_t k) {
  return {w.quant != nullptr ? w.quant->code : w.dtype, w.quant, {n, k}};
}

Case linear_case(const Weight& weight, Linear op, int64_t tokens, int64_t n, int64_t k, uint64_t seed) {
  Case c;
  c.op = op;
  c.in = {f32({Symbol::kTokens, k}), weight_type(weight, n, k)};
  c.weights = {1};
  const LinearInputs at = inputs_of(op);
  if (op.has_scale) c.in.push_back(f32({n})), c.weights.push_back(at.scale);
  if (op.has_bias) c.in.push_back(f32({n})), c.weights.push_back(at.bias);
  if (op.has_residual) c.in.push_back(f32({Symbol::kTokens, n}));
  c.sizes[Symbol::kTokens] = tokens;
  c.seed = seed;
  c.name = fmt::format("T={} {} {}{}{}{}", tokens, to_string(c.in[1]),
                       enum_names(op.compute)[static_cast<size_t>(op.compute)], op.has_scale ? " scale" : "",
                       op.has_bias ? " bias" : "", op.has_residual ? " residual" : "");
  return c;
}

// By definition, in f64: activations rounded as the op says (`exact`: not at all), weights as decoded.
std::vector<std::vector<double>> product(const Case& c, std::span<const Operand> in, bool exact) {
  const auto& op = std::get<Linear>(c.op);
  const int64_t tokens = in[0].shape[0], k = in[0].shape[1], n = in[1].shape[0];
  const LinearInputs at = inputs_of(op);
  std::vector<double> out(static_cast<size_t>(tokens * n)), x(static_cast<size_t>(k));
  for (int64_t t = 0; t < tokens; ++t) {
    round_token(exact ? Compute::kF32 : op.compute, op.rounding, in[0].values.data() + t * k, k, x.data());
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += x[static_cast<size_t>(j)] * in[1].value(i, j);
      const auto of_row = [&](int operand) {
        return static_cast<double>(in[static_cast<size_t>(operand)].values[static_cast<size_t>(i)]);
      };
      if (op.has_scale) sum *= of_row(at.scale);
      if (op.has_bias) sum += of_row(at.bias);
      if (op.has_residual) sum += in.back().value(t, i);
      out[static_cast<size_t>(t * n + i)] = sum;
    }
  }
  return {out};
}

// How large the terms of each sum are together: each is rounded by its own size, also where they cancel.
std::vector<std::vector<double>> terms(const Case& c, std::span<const Operand> in) {
  const auto& op = std::get<Linear>(c.op);
  const int64_t tokens = in[0].shape[0], n = in[1].shape[0], k = in[1].shape[1];
  const LinearInputs at = inputs_of(op);
  std::vector<double> out;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < n; ++i) {
      double squares = 0;
      for (int64_t j = 0; j < k; ++j) squares += std::pow(in[0].value(t, j) * in[1].value(i, j), 2);
      const double scale =
          op.has_scale ? static_cast<double>(in[static_cast<size_t>(at.scale)].values[static_cast<size_t>(i)]) : 1;
      out.push_back(std::sqrt(squares) * std::abs(scale));
    }
  return {out};
}

// Against rounded activations only f32 sums and the products' rounding are left: 2^-24 a step, K / 32 steps or K.
// kBF16 may round weights of other types to bf16 (2^-9 each, averaging out), and vdpbf16ps flushes denormals; inputs
// rounded to f8 are codes times a scale, which it may multiply exactly or rounded to bf16. A GPU's tensor cores cut
// terms to 24 bits beside the largest of 16; cuBLASLt is handed scaled weights rounded to bf16.
Bound arithmetic_bound(const Case& c, const Kernel& kernel) {
  const auto& op = std::get<Linear>(c.op);
  if (op.compute == Compute::kBF16 && c.in[1].dtype != DType::kBF16) return {8e-3, 5e-2};
  if (op.compute == Compute::kBF16 && op.rounding == InputRounding::kF8Token) return {3e-3, 2e-2};
  if (kernel.name == "linear_cublaslt") return op.has_scale ? Bound{8e-3, 5e-2} : Bound{2e-5, 4e-4};
  return {2e-6, 4e-5};
}

// Against exact activations: int8 errs by 1/254 of a group's largest, which outliers make large beside the others.
Bound model_bound(const Case& c, const Kernel&) {
  const auto& op = std::get<Linear>(c.op);
  if (op.compute == Compute::kInt8) return {0.03, 0.25};
  if (op.compute == Compute::kBF16) return {1e-2, 6e-2};
  return {2e-6, 4e-5};
}

std::string check(const Case& c, std::vector<std::string>* ran = nullptr) {
  Hooks hooks;
  hooks.oracle = [](const Case& cc, std::span<const Operand> in) { return product(cc, in, false); };
  hooks.bound = arithmetic_bound;
  std::string failures = check_kernels(linear_kernels(), c, hooks, ran);
  hooks.oracle = [](const Case& cc, std::span<const Operand> in) { return product(cc, in, true); };
  hooks.bound = model_bound;
  return failures + check_kernels(linear_kernels(), c, hooks);
}

std::vector<Weight> all_weights() {
  std::vector<Weight> weights = {{DType::kF32, nullptr},    {DType::kF16, nullptr},    {DType::kBF16, nullptr},
                                 {DType::kF8E4M3, nullptr}, {DType::kF8E5M2, nullptr}, {DType::kF64, nullptr},
                                 {DType::kI8, nullptr}};
  for (const QuantScheme* scheme : block_schemes()) weights.push_back({scheme->code, scheme});
  return weights;
}

int64_t k_step(const Weight& w) { return w.quant != nullptr ? w.quant->block_elements : 1; }

std::vector<Compute> computes(const Weight& w) {
  std::vector<Compute> list = {Compute::kF32, Compute::kBF16};
  if (w.quant != nullptr) list.push_back(Compute::kInt8);
  return list;
}

TEST(Linear, EveryWeightTypeAndTokenCount) {
  uint64_t seed = 1;
  std::map<std::string, int> ran;
  for (const Weight& weight : all_weights()) {
    for (const Compute compute : computes(weight)) {
      for (const int64_t tokens : {1, 2, 3, 5, 7, 8, 16, 17, 33, 64}) {
        Linear op{.compute = compute};
        op.has_bias = seed % 2 == 0, op.has_residual = seed % 3 == 0, op.has_scale = seed % 5 < 2;
        const int64_t step = k_step(weight);
        const int64_t k = step == 256 ? 512
                          : step > 1  ? step * static_cast<int64_t>(1 + seed % 7)
                                      : 37 + static_cast<int64_t>(seed % 40);
        Case c = linear_case(weight, op, tokens, 1 + static_cast<int64_t>(seed * 13 % 70), k, seed);
        c.stride_padding = static_cast<int64_t>(seed % 4);
        std::vector<std::string> names;
        EXPECT_EQ(check(c, &names), "");
        for (const std::string& name : names) ++ran[name];
        ++seed;
      }
    }
  }
  for (const auto& [name, count] : ran) fmt::print("  {}: {} cases\n", name, count);
}

TEST(Linear, F8InputRounding) {
  for (const Weight& weight : {Weight{DType::kBF16, nullptr}, Weight{DType::kF32, nullptr}, Weight{DType::kU4, &kQ4_1},
                               Weight{DType::kF8E4M3, nullptr}})
    for (const Compute compute : computes(weight))
      for (const int64_t tokens : {1, 19}) {
        const Linear op{
            .compute = compute, .rounding = InputRounding::kF8Token, .has_scale = weight.dtype == DType::kF8E4M3};
        EXPECT_EQ(check(linear_case(weight, op, tokens, 33, 96, 5)), "");
      }
}

// Zero rows, a row of denormals, one huge activation: nothing becomes NaN, nothing is lost.
TEST(Linear, ExtremeActivations) {
  for (const Weight& weight : all_weights())
    for (const Compute compute : computes(weight)) {
      const Case c = linear_case(weight, {.compute = compute}, 4, 20, 256, 9);
      Hooks hooks;
      hooks.fill = [](std::vector<Operand>& in) {
        std::vector<float> x = in[0].values;
        for (size_t i = 0; i < 256; ++i) x[i] = 0, x[256 + i] = i % 2 == 0 ? 1e-40f : -3e-41f;
        for (size_t i = 0; i < 256; ++i) x[512 + i] = i == 100 ? 1e30f : x[512 + i];
        in[0].set_values(x);
      };
      hooks.oracle = [](const Case& cc, std::span<const Operand> in) { return product(cc, in, false); };
      hooks.bound = arithmetic_bound;
      EXPECT_EQ(check_kernels(linear_kernels(), c, hooks), "");
    }
}

// A NaN activation must not vanish: its token's outputs are not finite, other tokens' are.
TEST(Linear, NanActivationIsSeen) {
  BOLIDE_CPU_ONLY();
  for (const Weight& weight : {Weight{DType::kF32, nullptr}, Weight{DType::kBF16, nullptr}, Weight{DType::kU4, &kQ4_0},
                               Weight{DType::kU4, &kQ4_1}, Weight{DType::kI8, &kQ6_K}})
    for (const Compute compute : computes(weight))
      for (const Kernel& kernel : linear_kernels()) {
        const Case c = linear_case(weight, {.compute = compute}, 3, 20, 256, 9);
        const DeviceInfo device = testing::this_machine(1);
        if (!kernel.supports({&c.op, c.in, {}, c.sizes, &device})) continue;
        std::mt19937_64 random(3);
        std::vector<Operand> in;
        for (size_t i = 0; i < 2; ++i) in.push_back(testing::random_operand(c.in[i], c.sizes, i == 1, random));
        std::vector<float> x = in[0].values;
        x[256 + 70] = NAN;
        in[0].set_values(x);
        const auto out = testing::run_once(kernel, c, in, 1)[0];
        for (size_t i = 0; i < out.size(); ++i)
          EXPECT_EQ(std::isfinite(out[i]), i / 20 != 1) << kernel.name << " " << c.name << " " << i;
      }
}

// An output's bits must not depend on how many tokens run beside it.
TEST(Linear, BatchInvariant) {
  BOLIDE_CPU_ONLY();
  for (const Weight& weight : all_weights())
    for (const Compute compute : computes(weight))
      for (const Kernel& kernel : linear_kernels()) {
        // Fewer than 8 tokens take FMA there; see README.md.
        if (kernel.name == "linear_bf16_amx") continue;
        const int64_t k = 512, n = 50;
        const Case all = linear_case(weight, {.compute = compute}, 29, n, k, 3);
        const DeviceInfo device = testing::this_machine(1);
        if (!kernel.supports({&all.op, all.in, {}, all.sizes, &device})) continue;
        std::mt19937_64 random(7);
        std::vector<Operand> in;
        for (size_t i = 0; i < 2; ++i) in.push_back(testing::random_operand(all.in[i], all.sizes, i == 1, random));
        const auto expected = testing::run_once(kernel, all, in, 2)[0];
        for (const int64_t tokens : {1, 2, 3, 4, 5, 8, 13}) {
          const Case few = linear_case(weight, {.compute = compute}, tokens, n, k, 3);
          std::vector<Operand> part = in;
          part[0].shape = Shape{tokens, k};
          part[0].set_values({in[0].values.begin(), in[0].values.begin() + tokens * k});
          const auto got = testing::run_once(kernel, few, part, 2)[0];
          EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0)
              << kernel.name << " " << few.name << " differs from T=29";
        }
      }
}

// What only GPUs have: bf16 activations, in, out or beside; shapes around the tiles of 64 tokens and rows.
TEST(Linear, OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = std::random_device{}();
  Hooks hooks;
  hooks.oracle = [](const Case& c, std::span<const Operand> in) { return product(c, in, false); };
  hooks.rounded = terms;
  hooks.bound = [](const Case& c, const Kernel& kernel) {
    Bound bound = arithmetic_bound(c, kernel);
    if (std::get<Linear>(c.op).compute == Compute::kBF16) bound.own_size = testing::kBF16Rounding;
    // One rounding of the result; results reach a few times their root mean square.
    if (c.out[0].dtype == DType::kBF16) bound.relative_l2 += testing::kBF16Rounding, bound.largest_error += 0.1;
    return bound;
  };
  std::vector<std::string> ran;
  for (const Weight& weight : all_weights())
    for (const Compute compute : computes(weight))
      for (const int64_t tokens : {1, 4, 6, 18, 64, 65, 130}) {
        Linear op{.compute = compute};
        if (seed % 5 == 0) op.rounding = InputRounding::kF8Token;
        op.has_bias = seed % 2 == 0, op.has_residual = seed % 3 != 0, op.has_scale = seed % 5 < 2;
        const int64_t step = k_step(weight), n = std::array<int64_t, 4>{1, 63, 64, 131}[seed % 4];
        const int64_t k = step == 1 ? std::array<int64_t, 5>{1, 8, 77, 256, 1000}[seed % 5] : step * 3;
        Case c = linear_case(weight, op, tokens, n, k, seed);
        c.in[0].dtype = seed / 2 % 4 == 0 ? DType::kF32 : DType::kBF16;
        if (op.has_residual) c.in.back().dtype = seed / 3 % 2 == 0 ? DType::kF32 : DType::kBF16;
        c.out = {{seed / 5 % 2 == 0 ? DType::kF32 : DType::kBF16, nullptr, {Symbol::kTokens, n}}};
        c.stride_padding = static_cast<int64_t>(seed % 3) * 4;
        EXPECT_EQ(check_kernels(linear_kernels(), c, hooks, &ran), "");
        ++seed;
      }
  EXPECT_FALSE(ran.empty());
}

TEST(Linear, NanActivationIsSeenOnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  for (const Weight& weight : all_weights())
    for (const Compute compute : computes(weight))
      for (const int64_t tokens : {3, 20}) {
        const Case c = linear_case(weight, {.compute = compute}, tokens, 20, 256, 9);
        Hooks hooks;
        hooks.fill = [](std::vector<Operand>& in) {
          std::vector<float> x = in[0].values;
          x[256 + 70] = NAN;
          in[0].set_values(x);
        };
        hooks.oracle = [](const Case& cc, std::span<const Operand> in) { return product(cc, in, false); };
        hooks.bound = arithmetic_bound;
        EXPECT_EQ(check_kernels(linear_kernels(), c, hooks), "");
      }
}

// Rows of the table that say they are batch-invariant are.
TEST(Linear, BatchInvariantOnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  const Kernel* kernel = cuda_kernels().find("linear_rows_cuda");
  ASSERT_NE(kernel, nullptr);
  for (const Weight& weight : all_weights())
    for (const Compute compute : computes(weight)) {
      const int64_t k = 512, n = 50;
      const Case all = linear_case(weight, {.compute = compute}, 29, n, k, 3);
      std::mt19937_64 random(7);
      std::vector<Operand> in;
      for (size_t i = 0; i < 2; ++i) in.push_back(testing::random_operand(all.in[i], all.sizes, i == 1, random));
      const auto expected = testing::run_once(*kernel, all, in, 1)[0];
      for (const int64_t tokens : {1, 2, 5, 13}) {
        const Case few = linear_case(weight, {.compute = compute}, tokens, n, k, 3);
        std::vector<Operand> part = in;
        part[0].shape = Shape{tokens, k};
        part[0].set_values({in[0].values.begin(), in[0].values.begin() + tokens * k});
        const auto got = testing::run_once(*kernel, few, part, 1)[0];
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0) << few.name << " differs from T=29";
      }
    }
}

// One product by `run`, packed by `packing`.
std::vector<float> multiply(const Packing& packing, size_t workspace_bytes, const Operand& x, const Operand& weight,
                            Compute compute, Workers& workers, FunctionRef<void(const Product&, Workers&)> run) {
  const int64_t tokens = x.shape[0], k = x.shape[1], n = weight.shape[0];
  const auto bytes = packing.bytes(weight.type);
  const Buffer packed = *Buffer::host(bytes), workspace = *Buffer::host(workspace_bytes);
  std::memset(workspace.data(), 0xff, workspace_bytes);
  WeightRows source{.dtype = weight.type.dtype, .quant = weight.type.quant, .rows = n, .k = k};
  source.row_bytes = row_bytes(source.dtype, source.quant, k);
  const WeightRows::Run runs[] = {{weight.natural.data(), n}};
  source.runs = runs;
  EXPECT_TRUE(packing.pack(weight.type, source, packed.bytes(), workers).has_value());
  std::vector<float> out(static_cast<size_t>(tokens * n), NAN);
  Product p;
  p.dtype = weight.type.dtype, p.quant = weight.type.quant, p.n = n, p.k = k, p.weights = packed.data();
  p.compute = compute, p.tokens = tokens;
  p.x = x.values.data(), p.x_stride = k;
  p.out = out.data(), p.out_stride = n;
  p.workspace = workspace.bytes();
  run(p, workers);
  return out;
}

// The AMX kernels' loops, with tiles emulated: int8 gives VNNI's bits, bf16 the oracle's values.
TEST(AmxEmulated, Int8HasTheBitsOfVnni) {
  BOLIDE_CPU_ONLY();
  if (!supports(detect_cpu(), Isa::kVnni)) GTEST_SKIP() << "needs AVX-512 VNNI";
  constexpr int kTiles[] = {16};
  const Int8Engine engine{kTiles, amx_emulated::int8_strips, vnni::int8_panel, 0, true};
  std::mt19937_64 random(5);
  for (const QuantScheme* scheme : block_schemes())
    for (const int threads : {1, 2})
      for (const int64_t tokens : {1, 8, 16, 17, 50}) {
        Workers workers(threads);
        const ValueType type = weight_type({scheme->code, scheme}, 83, 512);
        const Operand weight = testing::random_operand(type, {}, true, random);
        const Operand x = testing::random_operand(f32({tokens, 512}), {}, false, random);
        const auto got =
            multiply(kStripPacking, int8_workspace(engine, type, tokens, threads), x, weight, Compute::kInt8, workers,
                     [&](const Product& p, Workers& w) { run_int8(engine, p, w); });
        const auto expected = multiply(kStripPacking, kInt8Vnni.workspace(type, tokens, threads), x, weight,
                                       Compute::kInt8, workers, kInt8Vnni.run);
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0) << scheme->name << " T=" << tokens;
      }
  EXPECT_EQ(amx_emulated::faults(), 0);
}

TEST(AmxEmulated, Bf16MatchesTheOracle) {
  BOLIDE_CPU_ONLY();
  if (!supports(detect_cpu(), Isa::kAvx512)) GTEST_SKIP() << "needs AVX-512";
  std::mt19937_64 random(5);
  for (const int threads : {1, 2})
    for (const int64_t k : {1, 31, 32, 77, 128})
      for (const int64_t tokens : {1, 8, 16, 33, 70}) {
        Workers workers(threads);
        const Case c = linear_case({DType::kBF16, nullptr}, {.compute = Compute::kBF16}, tokens, 83, k, 1);
        const std::vector<Operand> in = {testing::random_operand(c.in[0], c.sizes, false, random),
                                         testing::random_operand(c.in[1], c.sizes, true, random)};
        const auto got =
            multiply(kFloatPacking, bf16_tiles_workspace(c.in[1], tokens, threads), in[0], in[1], Compute::kBF16,
                     workers, [](const Product& p, Workers& w) { run_bf16_tiles(amx_emulated::bf16_strips, p, w); });
        const auto expected = product(c, in, false)[0];
        double error = 0, norm = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
          norm += expected[i] * expected[i];
        }
        EXPECT_LE(std::sqrt(error / norm), 2e-6) << "K=" << k << " T=" << tokens;
      }
  EXPECT_EQ(amx_emulated::faults(), 0);
}

std::vector<const Packing*> packings() {
  std::vector<const Packing*> list;
  for (const ProductMethod* method : product_methods())
    if (std::find(list.begin(), list.end(), method->packing) == list.end()) list.push_back(method->packing);
  return list;
}

TEST(Packing, RoundTrips) {
  BOLIDE_CPU_ONLY();
  Workers workers(2);
  std::mt19937_64 random(11);
  for (const Weight& weight : all_weights())
    for (const Packing* packing : packings())
      for (const int64_t n : {1, 16, 37})
        for (const bool stacked : {false, true}) {
          ValueType type = weight_type(weight, n, k_step(weight) == 1 ? 45 : 512);
          if (stacked) type.dims.insert(type.dims.begin(), 3);
          if (packing->bytes(type) == 0) continue;
          EXPECT_EQ(testing::check_round_trip(*packing, testing::random_operand(type, {}, true, random), workers), "");
        }
}

TEST(Packing, EverySchemeHasStrips) {
  BOLIDE_CPU_ONLY();
  for (const QuantScheme* scheme : block_schemes())
    EXPECT_GT(kStripPacking.bytes(weight_type({scheme->code, scheme}, 16, 256)), 0u) << scheme->name;
}

TEST(Packing, RefusesNanAndNamesTheRow) {
  BOLIDE_CPU_ONLY();
  Workers workers(2);
  std::mt19937_64 random(11);
  for (const Weight& weight : all_weights())
    for (const Packing* packing : packings()) {
      const ValueType type = weight_type(weight, 20, 256);
      const size_t bytes = packing->bytes(type);
      if (bytes == 0 || weight.dtype == DType::kI8) continue;  // int8 codes are all numbers
      Operand operand = testing::random_operand(type, {}, true, random);
      const size_t per_row = row_bytes(type.dtype, type.quant, 256);
      // All ones: NaN in every float type; in a block, somewhere in it, its scale.
      std::memset(operand.natural.data() + 13 * per_row, 0xff, per_row);
      WeightRows source{.dtype = type.dtype, .quant = type.quant, .rows = 20, .k = 256, .row_bytes = per_row};
      const WeightRows::Run runs[] = {{operand.natural.data(), 20}};
      source.runs = runs;
      std::vector<std::byte> packed(bytes + 64);
      std::byte* aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64);
      const auto result = packing->pack(type, source, {aligned, bytes}, workers);
      ASSERT_FALSE(result.has_value()) << to_string(type);
      EXPECT_NE(result.error().text.find("row 13"), std::string::npos) << result.error().text;
    }
}

}  // namespace
}  // namespace bolide
