#include "cli/sampling_flags.h"

namespace bolide::cli {

SamplingParams choose_sampling(const Command& app, const SamplingFlags& flags, const GenerationConfig& config) {
  SamplingWishes wishes;
  const auto wish = [&](std::string_view name, double value, std::optional<float>& to) {
    if (app.given(name)) to = static_cast<float>(value);
  };
  wish("temperature", flags.temperature, wishes.temperature);
  wish("top_p", flags.top_p, wishes.top_p);
  wish("min_p", flags.min_p, wishes.min_p);
  if (app.given("top_k")) wishes.top_k = flags.top_k;
  wish("repetition_penalty", flags.repetition_penalty, wishes.repetition_penalty);
  wish("presence_penalty", flags.presence_penalty, wishes.presence_penalty);
  wish("frequency_penalty", flags.frequency_penalty, wishes.frequency_penalty);
  wishes.seed = static_cast<uint64_t>(flags.seed);
  return bolide::choose_sampling(wishes, config);
}

}  // namespace bolide::cli
