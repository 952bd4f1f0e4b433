#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <charconv>

namespace bolide::cli {

Result<std::vector<TokenBias>> parse_logit_biases(const std::vector<std::string>& flags) {
  std::vector<TokenBias> biases;
  for (const std::string& flag : flags) {
    TokenBias one{};
    const char* end = flag.data() + flag.size();
    const auto [equals, wrong_id] = std::from_chars(flag.data(), end, one.id);
    bool right = wrong_id == std::errc() && one.id >= 0 && equals != end && *equals == '=';
    if (right) {
      const auto [at, wrong_value] = std::from_chars(equals + 1, end, one.bias);
      right = wrong_value == std::errc() && at == end && one.bias >= -100 && one.bias <= 100;
    }
    if (!right)
      return error(Code::kInvalid,
                   fmt::format("--logit-bias {}: expected ID=VALUE, a token's id and a number from -100 to 100", flag));
    biases.push_back(one);
  }
  return biases;
}

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
