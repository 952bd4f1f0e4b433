#include "engine/top_logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace bolide {
namespace {

TEST(TopLogprobs, AreThoseOfASortedRow) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 500);
    for (float& x : logits) x = static_cast<float>(random() % 40) / 4 - 5;  // many are alike
    if (round % 3 == 0) logits[0] = -INFINITY;
    double sum = 0;
    for (const float x : logits) sum += std::exp(double{x});
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    const auto count = static_cast<int32_t>(random() % 21);
    const auto top = top_logprobs(logits, count, std::log(sum));
    ASSERT_EQ(top.size(), std::min(logits.size(), static_cast<size_t>(count)));
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(top[i].id, order[i]);
      EXPECT_FLOAT_EQ(top[i].logprob,
                      static_cast<float>(double{logits[static_cast<size_t>(order[i])]} - std::log(sum)));
    }
  }
}

}  // namespace
}  // namespace bolide
