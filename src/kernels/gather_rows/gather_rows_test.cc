#include "kernels/gather_rows/gather_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/testing/harness.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Operand;

TEST(GatherRows, CopiesTheRows) {
  uint64_t seed = std::random_device{}();
  for (const int64_t rows : {1, 3, 40})
    for (const int64_t width : {1, 100, 4096}) {
      std::mt19937_64 random(seed);
      std::vector<int32_t> wanted;
      for (int64_t r = 0; r < rows; ++r) wanted.push_back(static_cast<int32_t>(random() % 50));
      const Case c{"gather", GatherRows{},    {f32({Symbol::kTokens, width}), i32({Symbol::kRows})},
                   {},       {{50, 1, rows}}, seed++,
                   6};
      testing::Hooks hooks;
      hooks.fill = [&](std::vector<Operand>& in) { in[1].set_ints(wanted); };
      hooks.bound = [](const Case&, const Kernel&) { return Bound{0, 0}; };
      hooks.oracle = [&](const Case&, std::span<const Operand> in) {
        std::vector<double> out;
        for (const int32_t row : wanted)
          for (int64_t i = 0; i < width; ++i) out.push_back(in[0].value(row, i));
        return std::vector<std::vector<double>>{out};
      };
      std::vector<std::string> ran;
      EXPECT_EQ("", testing::check_kernels(gather_rows_kernels(), c, hooks, &ran)) << seed;
      EXPECT_FALSE(ran.empty());
      if (testing::runs_on_device()) continue;  // an error cannot come back from a launch
      wanted.back() = 50;
      hooks.oracle = [&](const Case&, std::span<const Operand>) { return std::vector<std::vector<double>>(1); };
      EXPECT_NE(testing::check_kernels(gather_rows_kernels(), c, hooks).find("token 50 of 50"), std::string::npos);
    }
}

// What only GPUs have: bf16, and a row of NaN for one that is not there.
TEST(GatherRows, OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const DType from : {DType::kF32, DType::kBF16})
    for (const DType to : {DType::kF32, DType::kBF16})
      for (const int64_t width : {1, 30, 4096}) {
        Case c{"gather", GatherRows{}, {{from, nullptr, {Symbol::kTokens, width}}, i32({Symbol::kRows})},
               {},       {{50, 1, 5}}, seed++,
               4};
        c.out = {{to, nullptr, {Symbol::kRows, width}}};
        testing::Hooks hooks;
        hooks.fill = [&](std::vector<Operand>& in) { in[1].set_ints({49, -1, 0, 50, 7}); };
        hooks.bound = [&](const Case&, const Kernel&) {
          return to == DType::kBF16 && from == DType::kF32 ? Bound{4e-3, 0.2} : Bound{0, 0};
        };
        hooks.oracle = [&](const Case&, std::span<const Operand> in) {
          std::vector<double> out;
          for (const int32_t row : in[1].ints)
            for (int64_t i = 0; i < width; ++i) out.push_back(row < 0 || row >= 50 ? NAN : in[0].value(row, i));
          return std::vector<std::vector<double>>{out};
        };
        EXPECT_EQ("", testing::check_kernels(gather_rows_kernels(), c, hooks, &ran));
      }
  EXPECT_FALSE(ran.empty());
}

}  // namespace
}  // namespace bolide
