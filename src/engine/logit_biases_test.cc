#include "engine/logit_biases.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bolide {
namespace {

std::string refusal(const std::vector<TokenBias>& wanted, const std::vector<int32_t>& ends, int32_t tokens_min,
                    int64_t vocab) {
  const auto made = make_logit_biases(wanted, ends, tokens_min, vocab);
  if (made) return "";
  EXPECT_EQ(made.error().code, Code::kInvalid);
  return made.error().text;
}

TEST(LogitBiases, BansOfEndsAreForTheFirstTokensAlone) {
  const std::vector<TokenBias> wanted = {{9, -100}, {3, 1.5f}};
  const std::vector<int32_t> ends = {7, 3};
  const auto made = *make_logit_biases(wanted, ends, 5, 10);
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(made->pairs.size(), 4u);
  EXPECT_EQ(made->count_at(0), 4);
  EXPECT_EQ(made->count_at(4), 4);
  EXPECT_EQ(made->count_at(5), 2);
  std::vector<float> of_all(10), at_first(10);
  for (size_t i = 0; i < 4; ++i) {
    const auto [id, bias] = made->pairs[i];
    at_first[static_cast<size_t>(id)] += bias;
    if (i < 2) of_all[static_cast<size_t>(id)] += bias;
  }
  EXPECT_EQ(of_all[3], 1.5f);
  EXPECT_EQ(of_all[9], -INFINITY) << "-100 is a ban";
  EXPECT_EQ(at_first[3], -INFINITY) << "a bias does not outdo the ban";
  EXPECT_EQ(at_first[7], -INFINITY);
  EXPECT_EQ(of_all[7], 0);
}

TEST(LogitBiases, NothingToAddIsNone) {
  EXPECT_EQ(*make_logit_biases({}, std::vector<int32_t>{1, 2}, 0, 10), nullptr);
  EXPECT_EQ(*make_logit_biases({}, {}, 5, 10), nullptr);
}

TEST(LogitBiases, WhatCannotBeMeantIsRefused) {
  EXPECT_NE(refusal({{10, 1}}, {}, 0, 10).find("logit_bias: token 10"), std::string::npos);
  EXPECT_NE(refusal({{-1, 1}}, {}, 0, 10), "");
  EXPECT_NE(refusal({{3, 1}, {4, 1}, {3, 2}}, {}, 0, 10).find("twice"), std::string::npos);
  std::vector<TokenBias> all;
  for (int32_t id = 0; id < 10; ++id) all.push_back({id, -100});
  EXPECT_NE(refusal(all, {}, 0, 10).find("every token"), std::string::npos);
  all.pop_back();
  EXPECT_EQ(refusal(all, {9, 9}, 0, 10), "");
  EXPECT_NE(refusal(all, {9, 9}, 1, 10).find("min_tokens"), std::string::npos);
  all.resize(kTokenBiasesMax, {0, 1});
  for (int32_t id = 0; id < kTokenBiasesMax; ++id) all[static_cast<size_t>(id)] = {id, 1};
  EXPECT_EQ(refusal(all, {9}, 0, 1 << 20), "");
  EXPECT_NE(refusal(all, {9}, 1, 1 << 20).find("2049"), std::string::npos);
}

}  // namespace
}  // namespace bolide
