// Sequence: one stream of tokens with its place in the KV cache. Owner: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/logit_biases.h"
#include "kernels/batch.h"
#include "kv/block_allocator.h"

namespace bolide {

// How a request's tokens are drawn, by the names people know. Values were validated where they entered.
struct SamplingParams {
  float temperature = 0;  // 0: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint64_t seed = 0;
  std::shared_ptr<const LogitBiases> biases;  // null: none
};

struct Sequence {
  std::vector<int32_t> tokens;  // prompt and generated
  int32_t prompt_count = 0;     // tokens that came from the user
  int32_t computed = 0;         // tokens whose keys and values are in the cache
  int32_t rope_length = 0;      // length that dynamic and long rope used for the last of the cached keys
  std::vector<BlockId> blocks;
  SamplingParams sampling;
  uint64_t request = 0;  // keys the random draws
  // The runner's: place in a device's TokenHistory, and how many tokens it has of this sequence.
  int32_t history_place = -1, history_sent = 0;

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
};

}  // namespace bolide
