#include "app/sampling.h"

#include <gtest/gtest.h>

namespace bolide {
namespace {

TEST(ChooseSampling, IsGreedyUnlessSomethingAsksForDraws) {
  GenerationConfig config;
  config.temperature = 0.6;
  config.top_k = 20;
  config.repetition_penalty = 1.1;
  const SamplingParams params = choose_sampling({}, config);
  EXPECT_EQ(params.temperature, 0);  // do_sample is not there
  EXPECT_EQ(params.top_k, 0);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1.1f);  // changes greedy answers too
}

TEST(ChooseSampling, TakesTheCheckpointsValuesWhereNothingIsWished) {
  GenerationConfig config;
  config.do_sample = true;
  config.temperature = 0.6;
  config.top_p = 0.95;
  config.top_k = 20;
  SamplingWishes wishes;
  wishes.top_k = 5;
  wishes.seed = 9;
  const SamplingParams params = choose_sampling(wishes, config);
  EXPECT_FLOAT_EQ(params.temperature, 0.6f);
  EXPECT_FLOAT_EQ(params.top_p, 0.95f);
  EXPECT_EQ(params.top_k, 5);
  EXPECT_EQ(params.seed, 9u);
  wishes.temperature = 0.f;  // greedy all the same
  EXPECT_EQ(choose_sampling(wishes, config).temperature, 0);
}

TEST(ChooseSampling, AWishForADrawMeansTemperatureOne) {
  SamplingWishes wishes;
  EXPECT_EQ(choose_sampling(wishes, {}).temperature, 0);
  wishes.min_p = 0.1f;
  EXPECT_EQ(choose_sampling(wishes, {}).temperature, 1);
  wishes.temperature = 0.5f;
  EXPECT_EQ(choose_sampling(wishes, {}).temperature, 0.5f);
}

}  // namespace
}  // namespace bolide
