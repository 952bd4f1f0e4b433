#include "engine/step_time.h"

#include <algorithm>

namespace bolide {
namespace {

constexpr double kForget = 0.998;     // half of what is known is from the last 350 steps
constexpr double kTokenScale = 1e-2;  // terms of about one, so that rounding does not matter
constexpr double kContextScale = 1e-4;
constexpr double kUnsure = 1e6;     // variance of weights of which nothing was seen
constexpr double kUnsureMax = 1e9;  // forgetting must not make it grow for ever

std::array<double, 3> terms(int32_t tokens, int64_t context) {
  return {1, static_cast<double>(tokens) * kTokenScale, static_cast<double>(context) * kContextScale};
}

}  // namespace

StepTime::StepTime(double per_token_us) : weights_{0, per_token_us / kTokenScale, 0} {
  for (size_t i = 0; i < kTerms; ++i) covariance_[i][i] = kUnsure;
}

void StepTime::learn(int32_t tokens, int64_t context, double us) {
  const auto x = terms(tokens, context);
  std::array<double, kTerms> px{};
  double xpx = kForget;
  for (size_t i = 0; i < kTerms; ++i)
    for (size_t j = 0; j < kTerms; ++j) px[i] += covariance_[i][j] * x[j];
  for (size_t i = 0; i < kTerms; ++i) xpx += x[i] * px[i];
  double miss = us;
  for (size_t i = 0; i < kTerms; ++i) miss -= weights_[i] * x[i];
  for (size_t i = 0; i < kTerms; ++i) weights_[i] += px[i] / xpx * miss;
  for (size_t i = 0; i < kTerms; ++i)
    for (size_t j = 0; j < kTerms; ++j)
      covariance_[i][j] = std::clamp((covariance_[i][j] - px[i] * px[j] / xpx) / kForget, -kUnsureMax, kUnsureMax);
}

double StepTime::predict(int32_t tokens, int64_t context) const {
  const auto x = terms(tokens, context);
  double us = 0;
  // Less than nothing is noise: more work never takes less time.
  for (size_t i = 0; i < kTerms; ++i) us += std::max(weights_[i], 0.0) * x[i];
  return us;
}

int32_t StepTime::tokens_within(double us, int32_t decoding, int64_t decoding_context, int32_t least,
                                int32_t most) const {
  int32_t low = least, high = std::max(least, most);  // low is returned if even that takes longer
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    const int64_t prompt = std::max(middle - decoding, 0);
    if (predict(middle, decoding_context + prompt) <= us)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace bolide
