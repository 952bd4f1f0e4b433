#include "engine/top_logprobs.h"

#include <algorithm>

namespace bolide {

// One pass with a short sorted list: few logits get past its last, whose place they take.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count, double log_total) {
  std::vector<TokenLogprob> top;  // with logits until the end
  const auto most = static_cast<size_t>(std::max(count, 0));
  if (most == 0) return top;
  top.reserve(most + 1);
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = logits[id];
    if (top.size() == most && !(logit > top.back().logprob)) continue;
    const auto place =
        std::upper_bound(top.begin(), top.end(), logit, [](float x, const TokenLogprob& t) { return x > t.logprob; });
    top.insert(place, {static_cast<int32_t>(id), logit});
    if (top.size() > most) top.pop_back();
  }
  for (TokenLogprob& token : top) token.logprob = static_cast<float>(double{token.logprob} - log_total);
  return top;
}

}  // namespace bolide
