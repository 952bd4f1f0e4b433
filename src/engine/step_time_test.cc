#include "engine/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace bolide {
namespace {

// A machine of which the times are known, with noise of 5 %.
struct Machine {
  double fixed, token, context;
  double us(int32_t tokens, int64_t cached) const {
    return fixed + token * tokens + context * static_cast<double>(cached);
  }
};

void run(StepTime& model, const Machine& machine, int steps, std::mt19937& random) {
  std::normal_distribution<double> noise(1, 0.05);
  for (int i = 0; i < steps; ++i) {
    const auto decoding = static_cast<int32_t>(1 + random() % 32);
    const auto prompt = static_cast<int32_t>(random() % 3 == 0 ? random() % 480 : 0);
    const auto context = static_cast<int64_t>(random() % 20000);
    model.learn(decoding + prompt, context, machine.us(decoding + prompt, context) * noise(random));
  }
}

void expect_near(const StepTime& model, const Machine& machine) {
  for (const int32_t tokens : {1, 16, 200, 500})
    for (const int64_t context : {int64_t{0}, int64_t{5000}, int64_t{20000}}) {
      const double us = machine.us(tokens, context);
      EXPECT_NEAR(model.predict(tokens, context), us, 0.1 * us) << tokens << " tokens, " << context << " cached";
    }
}

TEST(StepTime, LearnsAMachineAndThenAnother) {
  std::mt19937 random(11);
  StepTime model;
  const Machine slow{9000, 350, 0.4}, fast{5000, 20, 0.05};
  run(model, slow, 400, random);
  expect_near(model, slow);
  run(model, fast, 4000, random);
  expect_near(model, fast);
}

TEST(StepTime, TokensFitTheTime) {
  std::mt19937 random(12);
  StepTime model;
  const Machine machine{2000, 100, 0.1};
  run(model, machine, 2000, random);
  for (const double us : {3000.0, 10000.0, 30000.0}) {
    const int32_t tokens = model.tokens_within(us, 8, 4000, 8, 512);
    EXPECT_NEAR(machine.us(tokens, 4000 + tokens - 8), us, 0.15 * us) << tokens;
  }
  EXPECT_EQ(model.tokens_within(100, 8, 4000, 24, 512), 24) << "the least is always granted";
  EXPECT_EQ(model.tokens_within(1e9, 8, 4000, 24, 512), 512);
}

// Steps that are all the same tell nothing of a token's cost; the model must not run away meanwhile.
TEST(StepTime, SteadyStepsLeaveItSane) {
  StepTime model;
  for (int i = 0; i < 100000; ++i) model.learn(8, 1000, 10000);
  EXPECT_NEAR(model.predict(8, 1000), 10000, 100);
  const double more = model.predict(400, 1000);
  EXPECT_TRUE(std::isfinite(more) && more >= 9900) << more;
}

}  // namespace
}  // namespace bolide
