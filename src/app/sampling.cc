#include "app/sampling.h"

#include <algorithm>
#include <cstdint>

namespace bolide {

SamplingParams choose_sampling(const SamplingWishes& wishes, const GenerationConfig& config) {
  // transformers draws only if do_sample says so; without it the other values of the file are not used.
  const bool config_draws = config.do_sample.value_or(false);
  const bool wishes_draw = wishes.top_k.has_value() || wishes.top_p.has_value() || wishes.min_p.has_value();
  const auto pick = [&](const std::optional<float>& wish, const std::optional<double>& file, double other) {
    if (wish.has_value()) return *wish;
    return static_cast<float>(config_draws && file.has_value() ? *file : other);
  };
  // Penalties change greedy answers too.
  const auto penalty = [](const std::optional<float>& wish, const std::optional<double>& file, double other) {
    return wish.has_value() ? *wish : static_cast<float>(file.value_or(other));
  };
  SamplingParams params;
  params.temperature = pick(wishes.temperature, config.temperature, config_draws || wishes_draw ? 1 : 0);
  params.top_p = pick(wishes.top_p, config.top_p, 1);
  params.min_p = pick(wishes.min_p, config.min_p, 0);
  params.top_k = wishes.top_k.has_value() ? *wishes.top_k
                 : config_draws ? static_cast<int32_t>(std::clamp<int64_t>(config.top_k.value_or(0), 0, INT32_MAX))
                                : 0;
  params.repetition_penalty = penalty(wishes.repetition_penalty, config.repetition_penalty, 1);
  params.presence_penalty = penalty(wishes.presence_penalty, config.presence_penalty, 0);
  params.frequency_penalty = penalty(wishes.frequency_penalty, config.frequency_penalty, 0);
  params.seed = wishes.seed;
  return params;
}

}  // namespace bolide
