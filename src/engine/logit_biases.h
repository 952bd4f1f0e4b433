// LogitBiases: what one request adds to logits: its own biases, and bans of what would end an answer too early.
//
// Thread rules: immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/sampling_row.h"

namespace bolide {

// Pairs of one request, bans among them: a device keeps room for so many of each sequence.
inline constexpr int32_t kTokenBiasesMax = 2048;

struct LogitBiases {
  std::vector<TokenBias> pairs;  // those of every token of the answer, then those of its first `tokens_min`
  int32_t lasting = 0;           // of the former
  int32_t tokens_min = 0;

  // Of the pairs, how many the token has before which so many are drawn: known before their ids are.
  int32_t count_at(int32_t drawn) const { return drawn < tokens_min ? static_cast<int32_t>(pairs.size()) : lasting; }
};

// `wanted`: what is added, -100 and below being a ban. None of `ends` is drawn before `tokens_min` tokens are. Null:
// there is nothing to add. Errors, kInvalid: ids outside the vocabulary or given twice, more than kTokenBiasesMax,
// nothing left that could be drawn; the text names logit_bias or min_tokens.
Result<std::shared_ptr<const LogitBiases>> make_logit_biases(std::span<const TokenBias> wanted,
                                                             std::span<const int32_t> ends, int32_t tokens_min,
                                                             int64_t vocab);

}  // namespace bolide
