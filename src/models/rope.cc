// Rotary frequencies of every rope type of transformers (modeling_rope_utils there defines the types).
// Sources: linear (Chen et al. 2023, arXiv:2306.15595), dynamic NTK, YaRN (Peng et al. 2023, arXiv:2309.00071),
// LongRoPE (Ding et al. 2024, arXiv:2402.13753), Llama 3.1's wavelength bands (arXiv:2407.21783).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/decoder.h"

namespace bolide {
namespace {

std::vector<float> base_frequencies(double theta, int64_t rotary) {
  std::vector<float> inv(static_cast<size_t>(rotary / 2));
  // Powers in float32, as the models were trained.
  for (size_t i = 0; i < inv.size(); ++i)
    inv[i] = 1.f / std::pow(static_cast<float>(theta), static_cast<float>(2 * i) / static_cast<float>(rotary));
  return inv;
}

// Low frequencies are divided by `factor`, high ones kept, those between blended.
void scale_llama3(const RopeConfig& config, std::vector<float>* inv) {
  const double context = static_cast<double>(config.original_context);
  const double low_wavelength = context / config.low_freq_factor, high_wavelength = context / config.high_freq_factor;
  for (float& f : *inv) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > low_wavelength) {
      f = static_cast<float>(f / config.factor);
    } else if (wavelength >= high_wavelength) {
      const double smooth =
          (context / wavelength - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
      f = static_cast<float>((1 - smooth) * f / config.factor + smooth * f);
    }
  }
}

double yarn_mscale(double scale, double mscale) { return scale <= 1 ? 1 : 0.1 * mscale * std::log(scale) + 1; }

void scale_yarn(const RopeConfig& config, RopeSpec* spec) {
  const double dim = static_cast<double>(spec->rotary_dim), context = static_cast<double>(config.original_context);
  // The dim at which a frequency turns `rotations` times over the original context.
  const auto correction = [&](double rotations) {
    return dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(config.theta));
  };
  double low = correction(config.beta_fast), high = correction(config.beta_slow);
  if (config.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < spec->inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0., 1.);
    const double extrapolated = spec->inv_freq[i], interpolated = extrapolated / config.factor;
    spec->inv_freq[i] = static_cast<float>(interpolated * ramp + extrapolated * (1 - ramp));
  }
  if (config.attention_factor.has_value()) {
    spec->attention_factor = static_cast<float>(*config.attention_factor);
  } else if (config.mscale.value_or(0) != 0 && config.mscale_all_dim.value_or(0) != 0) {
    spec->attention_factor = static_cast<float>(yarn_mscale(config.factor, *config.mscale) /
                                                yarn_mscale(config.factor, *config.mscale_all_dim));
  } else {
    spec->attention_factor = static_cast<float>(yarn_mscale(config.factor, 1));
  }
}

Result<> scale_long(const RopeConfig& config, int64_t context_max, RopeSpec* spec) {
  const size_t half = spec->inv_freq.size();
  if (config.short_factor.size() != half || config.long_factor.size() != half)
    return error(Code::kInvalid, fmt::format("longrope has {} short and {} long factors; {} frequencies need as many",
                                             config.short_factor.size(), config.long_factor.size(), half));
  spec->kind = RopeKind::kLong;
  spec->original_context = config.original_context;
  spec->inv_freq_long = spec->inv_freq;
  for (size_t i = 0; i < half; ++i) {
    if (config.short_factor[i] <= 0 || config.long_factor[i] <= 0)
      return error(Code::kInvalid, "longrope factors must be positive");
    spec->inv_freq[i] = static_cast<float>(spec->inv_freq[i] / config.short_factor[i]);
    spec->inv_freq_long[i] = static_cast<float>(spec->inv_freq_long[i] / config.long_factor[i]);
  }
  const double original = static_cast<double>(config.original_context);
  const double factor = config.factor != 1 ? config.factor : static_cast<double>(context_max) / original;
  if (config.attention_factor.has_value())
    spec->attention_factor = static_cast<float>(*config.attention_factor);
  else if (factor > 1)
    spec->attention_factor = static_cast<float>(std::sqrt(1 + std::log(factor) / std::log(original)));
  return {};
}

}  // namespace

Result<RopeSpec> make_rope(const RopeConfig& config, int64_t head_dim, int64_t context_max) {
  RopeSpec spec;
  spec.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * config.partial_rotary_factor) / 2 * 2;
  if (spec.rotary_dim < 2 || spec.rotary_dim > head_dim)
    return error(Code::kInvalid, fmt::format("rope: partial_rotary_factor {} leaves {} of {} head dims",
                                             config.partial_rotary_factor, spec.rotary_dim, head_dim));
  if (!(config.theta > 0) || !(config.factor > 0))
    return error(Code::kInvalid,
                 fmt::format("rope: theta {} and factor {} must be positive", config.theta, config.factor));
  const bool needs_context = config.type != RopeType::kDefault && config.type != RopeType::kLinear;
  if (needs_context && config.original_context < 1)
    return error(Code::kInvalid,
                 fmt::format("rope type {} needs original_max_position_embeddings", to_string(config.type)));
  spec.theta = static_cast<float>(config.theta);
  spec.inv_freq = base_frequencies(config.theta, spec.rotary_dim);
  switch (config.type) {
    case RopeType::kDefault: break;
    case RopeType::kLinear:
      for (float& f : spec.inv_freq) f = static_cast<float>(f / config.factor);
      break;
    case RopeType::kDynamic:
      spec.kind = RopeKind::kDynamic;
      spec.factor = static_cast<float>(config.factor);
      spec.original_context = config.original_context;
      break;
    case RopeType::kYarn: scale_yarn(config, &spec); break;
    case RopeType::kLlama3: scale_llama3(config, &spec.inv_freq); break;
    case RopeType::kLongRope: BOLIDE_TRY(scale_long(config, context_max, &spec)); break;
  }
  return spec;
}

}  // namespace bolide
