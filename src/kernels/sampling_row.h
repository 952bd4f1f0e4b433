// SamplingRow: plain data, which code for GPUs reads too.
#pragma once

#include <cstdint>

namespace bolide {

// What is added to the logit of a token; -infinity: it is not drawn.
struct TokenBias {
  int32_t id;
  float bias;
};

// How one row of logits becomes a token. Greedy if temperature is 0. Applied in this order, as vLLM does: biases,
// penalties, temperature, top_k, top_p, min_p; then the draw.
struct SamplingRow {
  float temperature = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;  // over the whole history (Keskar et al. 2019, arXiv:1909.05858)
  float presence_penalty = 0;    // over generated tokens only, as OpenAI's API defines it
  float frequency_penalty = 0;
  int32_t top_k = 0;  // 0: off
  uint64_t seed = 0;
  uint64_t request = 0;              // draws are keyed by (seed, request, position): what else runs does not matter
  int64_t position = 0;              // of the token to draw
  const int32_t* history = nullptr;  // prompt and generated ids
  int32_t history_count = 0;
  int32_t prompt_count = 0;  // the first prompt_count of history are the prompt
  // In any order; a token has one finite bias at most. -infinity beside it wins.
  const TokenBias* biases = nullptr;
  int32_t bias_count = 0;

  constexpr bool needs_history() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  // What is drawn from is not the logits as they are.
  constexpr bool adjusts() const { return bias_count > 0 || needs_history(); }
};

}  // namespace bolide
