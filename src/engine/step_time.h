// StepTime: learns how long steps take, and how many tokens of prompts fit one that must end in time.
//
// time = a + b * tokens + c * cached tokens read, by recursive least squares that forget: what a machine does now
// counts, not what it did an hour ago.
//
// Thread rules: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bolide {

class StepTime {
 public:
  // `per_token_us`: the guess before anything was measured.
  explicit StepTime(double per_token_us = 100);

  // A step of `tokens`, whose attention read `context` cached tokens, took so long.
  void learn(int32_t tokens, int64_t context, double us);
  double predict(int32_t tokens, int64_t context) const;
  // The most tokens, at least `least` and at most `most`, with which a step is predicted to take at most `us`, if all
  // but `decoding` of them are of one prompt.
  int32_t tokens_within(double us, int32_t decoding, int64_t decoding_context, int32_t least, int32_t most) const;

 private:
  static constexpr size_t kTerms = 3;
  std::array<double, kTerms> weights_;
  std::array<std::array<double, kTerms>, kTerms> covariance_{};
};

}  // namespace bolide
