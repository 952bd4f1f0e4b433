#include "engine/logit_biases.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace bolide {
namespace {

constexpr float kBan = -100;
constexpr float kForbidden = -std::numeric_limits<float>::infinity();

bool before(const TokenBias& a, const TokenBias& b) { return a.id < b.id; }

// Tokens that no draw can give, of pairs that may name one twice.
int64_t forbidden_count(std::span<const TokenBias> pairs) {
  std::vector<int32_t> ids;
  for (const TokenBias& pair : pairs)
    if (pair.bias == kForbidden) ids.push_back(pair.id);
  std::sort(ids.begin(), ids.end());
  return std::unique(ids.begin(), ids.end()) - ids.begin();
}

}  // namespace

Result<std::shared_ptr<const LogitBiases>> make_logit_biases(std::span<const TokenBias> wanted,
                                                             std::span<const int32_t> ends, int32_t tokens_min,
                                                             int64_t vocab) {
  LogitBiases made;
  made.pairs.assign(wanted.begin(), wanted.end());
  std::sort(made.pairs.begin(), made.pairs.end(), before);
  for (size_t i = 0; i < made.pairs.size(); ++i) {
    TokenBias& pair = made.pairs[i];
    if (pair.id < 0 || pair.id >= vocab)
      return error(Code::kInvalid, fmt::format("logit_bias: token {} is not in the vocabulary of {}", pair.id, vocab));
    if (i > 0 && made.pairs[i - 1].id == pair.id)
      return error(Code::kInvalid, fmt::format("logit_bias: token {} is there twice", pair.id));
    if (pair.bias <= kBan) pair.bias = kForbidden;
  }
  if (forbidden_count(made.pairs) == vocab) return error(Code::kInvalid, "logit_bias: it bans every token; leave one");
  made.lasting = static_cast<int32_t>(made.pairs.size());
  if (tokens_min > 0) {
    made.tokens_min = tokens_min;
    for (const int32_t id : ends) made.pairs.push_back({id, kForbidden});
    if (forbidden_count(made.pairs) == vocab)
      return error(Code::kInvalid, "min_tokens: logit_bias leaves only tokens that end the answer");
  }
  if (made.pairs.size() > static_cast<size_t>(kTokenBiasesMax))
    return error(Code::kInvalid, fmt::format("logit_bias: {} tokens with those that end an answer, at most {}",
                                             made.pairs.size(), kTokenBiasesMax));
  if (made.pairs.empty()) return std::shared_ptr<const LogitBiases>();
  return std::make_shared<const LogitBiases>(std::move(made));
}

}  // namespace bolide
