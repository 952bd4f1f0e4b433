#include "cli/sampling_flags.h"

namespace bolide::cli {

SamplingParams choose_sampling(const CLI::App& app, const SamplingFlags& flags, const GenerationConfig& config) {
  SamplingParams params;
  // transformers draws only if do_sample says so; without it the other values of the file are not used.
  const bool config_draws = config.do_sample.value_or(false);
  const bool flags_draw = given(app, "top_k") || given(app, "top_p") || given(app, "min_p");
  const auto pick = [&](std::string_view name, double flag, const std::optional<double>& file, double other) {
    if (given(app, name)) return static_cast<float>(flag);
    return static_cast<float>(config_draws && file.has_value() ? *file : other);
  };
  params.temperature = pick("temperature", flags.temperature, config.temperature, config_draws || flags_draw ? 1 : 0);
  params.top_p = pick("top_p", flags.top_p, config.top_p, 1);
  params.min_p = pick("min_p", flags.min_p, config.min_p, 0);
  params.top_k = given(app, "top_k") ? flags.top_k : config_draws ? static_cast<int32_t>(config.top_k.value_or(0)) : 0;
  // Penalties change greedy answers too.
  const auto penalty = [&](std::string_view name, double flag, const std::optional<double>& file, double other) {
    return static_cast<float>(given(app, name) ? flag : file.value_or(other));
  };
  params.repetition_penalty = penalty("repetition_penalty", flags.repetition_penalty, config.repetition_penalty, 1);
  params.presence_penalty = penalty("presence_penalty", flags.presence_penalty, config.presence_penalty, 0);
  params.frequency_penalty = penalty("frequency_penalty", flags.frequency_penalty, config.frequency_penalty, 0);
  params.seed = static_cast<uint64_t>(flags.seed);
  return params;
}

}  // namespace bolide::cli
