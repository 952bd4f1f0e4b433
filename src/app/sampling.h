// What a user asked of the sampler: a value, else the checkpoint's generation_config.json, else greedy.
//
// Thread rules: plain values.
#pragma once

#include <optional>

#include "base/options.h"
#include "engine/sequence.h"
#include "formats/model_config.h"

namespace bolide {

// Flags and their ranges; the C++ API checks its values with the same table.
struct SamplingFlags {
  double temperature = 0;
  int32_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  int64_t seed = 0;
  int32_t max_tokens = 0;
  int32_t min_tokens = 0;
};

inline constexpr Option<SamplingFlags> kSamplingOptions[] = {
    {"temperature",
     &SamplingFlags::temperature,
     {.min = 0, .max = 100},
     "0: always the likeliest token; above: draws, the same for the same --seed"},
    {"top_k", &SamplingFlags::top_k, {.min = 0}, "draw from the k likeliest tokens; 0: all"},
    {"top_p", &SamplingFlags::top_p, {.min = 0, .max = 1}, "draw from the likeliest tokens that hold this probability"},
    {"min_p",
     &SamplingFlags::min_p,
     {.min = 0, .max = 1},
     "leave out tokens below this share of the likeliest one's probability"},
    {"repetition_penalty",
     &SamplingFlags::repetition_penalty,
     {.min = 0.01, .max = 100},
     "above 1: less of what was already said"},
    {"presence_penalty",
     &SamplingFlags::presence_penalty,
     {.min = -100, .max = 100},
     "taken off each generated token's score once"},
    {"frequency_penalty",
     &SamplingFlags::frequency_penalty,
     {.min = -100, .max = 100},
     "taken off for each time a token was generated"},
    {"seed", &SamplingFlags::seed, {.min = 0}, "of the random draws: another seed, another answer"},
    {"max_tokens",
     &SamplingFlags::max_tokens,
     {.unit = "tokens", .min = 0},
     "length of the answer at most; 0: until the context is full"},
    {"min_tokens",
     &SamplingFlags::min_tokens,
     {.unit = "tokens", .min = 0},
     "the model does not end the answer, nor does --stop, before it has so many tokens"},
};

struct SamplingWishes {
  std::optional<float> temperature, top_p, min_p;
  std::optional<int32_t> top_k;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  uint64_t seed = 0;
};

// Wishes win over `config`; asking for any draw without a temperature means temperature 1.
SamplingParams choose_sampling(const SamplingWishes& wishes, const GenerationConfig& config);

}  // namespace bolide
