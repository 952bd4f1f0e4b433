#include "kernels/embed/embed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/testing/harness.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Operand;

TEST(Embed, EveryTableType) {
  std::vector<ValueType> tables;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2})
    tables.push_back({dtype, nullptr, {60, 40}});
  for (const QuantScheme* scheme : block_schemes()) tables.push_back({scheme->code, scheme, {60, 512}});
  uint64_t seed = std::random_device{}();
  for (const ValueType& table : tables)
    for (const int64_t tokens : {1, 7, 200}) {
      std::mt19937_64 random(seed);
      std::vector<int32_t> ids;
      for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>(random() % 60));
      // The table is handed over as the checkpoint has it: embed_ref asks for no packing.
      const Case c{"embed", Embed{}, {i32({Symbol::kTokens}), table}, {1}, {{tokens, 1, 1}}, seed++, 3};
      testing::Hooks hooks;
      hooks.fill = [&](std::vector<Operand>& in) { in[0].set_ints(ids); };
      hooks.bound = [](const Case&, const Kernel&) { return Bound{0, 0}; };
      hooks.oracle = [&](const Case&, std::span<const Operand> in) {
        std::vector<double> out;
        for (const int32_t id : ids)
          for (int64_t i = 0; i < in[1].shape[-1]; ++i) out.push_back(in[1].value(id, i));
        return std::vector<std::vector<double>>{out};
      };
      std::vector<std::string> ran;
      EXPECT_EQ("", testing::check_kernels(embed_kernels(), c, hooks, &ran)) << to_string(table) << " seed " << seed;
      EXPECT_FALSE(ran.empty());
      if (testing::runs_on_device()) continue;  // an error cannot come back from a launch
      for (const int32_t bad : {-1, 60}) {
        ids[ids.size() / 2] = bad;
        hooks.oracle = [&](const Case&, std::span<const Operand>) { return std::vector<std::vector<double>>(1); };
        EXPECT_NE(testing::check_kernels(embed_kernels(), c, hooks).find("the table has 60 rows"), std::string::npos);
      }
    }
}

// What only GPUs have: bf16 activations, and a row of NaN for an id outside the table.
TEST(Embed, OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = std::random_device{}();
  std::vector<ValueType> tables;
  for (const DType table : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2})
    for (const int64_t width : {1, 30, 64, 1028, 4096}) tables.push_back({table, nullptr, {50, width}});
  for (const QuantScheme* scheme : block_schemes()) tables.push_back({scheme->code, scheme, {50, 768}});
  for (const ValueType& table : tables)
    for (const DType activation : {DType::kF32, DType::kBF16}) {
      const int64_t width = table.last().factor;
      const SymbolValues sizes{{9, 1, 1}};
      Case c{"embed", Embed{}, {i32({Symbol::kTokens}), table}, {1}, sizes, seed++, 4};
      c.out = {{activation, nullptr, {Symbol::kTokens, width}}};
      testing::Hooks hooks;
      hooks.fill = [&](std::vector<Operand>& in) { in[0].set_ints({0, 49, 7, -1, 50, 7, 2147483647, 3, 48}); };
      hooks.bound = [&](const Case&, const Kernel&) {
        return activation == DType::kBF16 ? Bound{4e-3, 0.2} : Bound{0, 0};  // one rounding, 2^-9 of the largest
      };
      hooks.oracle = [&](const Case&, std::span<const Operand> in) {
        std::vector<double> out;
        for (const int32_t id : in[0].ints)
          for (int64_t i = 0; i < width; ++i) out.push_back(id < 0 || id >= 50 ? NAN : in[1].value(id, i));
        return std::vector<std::vector<double>>{out};
      };
      std::vector<std::string> ran;
      EXPECT_EQ("", testing::check_kernels(embed_kernels(), c, hooks, &ran)) << to_string(table);
      EXPECT_FALSE(ran.empty());
    }
}

}  // namespace
}  // namespace bolide
