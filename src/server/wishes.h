// What a client asked for, in whichever dialect: the values that all of them have, before a model was looked at.
//
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/sampling.h"

namespace bolide::server {

// What one request may ask for at most.
struct RequestLimits {
  int32_t choices_max = 16;
  size_t stops_max = 16, stop_bytes_max = 256;
  size_t logit_biases_max = 1024;
  size_t tools_max = 128;
  int32_t top_logprobs_max = 20;
  size_t stop_ids_max = 256;
  size_t prompts_max = 128;
  size_t prompt_logprobs_max = 1u << 20;  // of all prompts, with the likeliest in each place
  size_t nodes_max = 1'000'000;           // values of its JSON
  size_t keys_max = 16'384;               // of all objects in it
  size_t object_keys_max = 2048;          // of each
};

struct Wishes {
  SamplingWishes sampling;  // its seed is that of `seed`, if there is one
  std::optional<uint64_t> seed;
  std::optional<int32_t> tokens_max;  // at least 1; 0 of a completion: the prompt alone is wanted
  int32_t tokens_min = 0;
  int32_t choices = 1;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool prompt_logprobs = false;  // with logprobs: of the prompt, too
  std::vector<TokenBias> logit_bias;
  int32_t priority = 0;
  bool stream = false, include_usage = false;
};

}  // namespace bolide::server
