// Qwen2 (arXiv:2407.10671) and Qwen3 (arXiv:2505.09388) dense decoders: Llama with biases on q, k and v; with q and k
// normalised per head instead.
#include <fmt/format.h>

#include "models/families.h"
#include "models/llama.h"

namespace bolide {
namespace {

constexpr std::string_view kQwen2Architectures[] = {"Qwen2ForCausalLM"};
constexpr std::string_view kQwen3Architectures[] = {"Qwen3ForCausalLM"};

// Layers from max_window_layers on slide, if use_sliding_window; layer_types says it outright in newer files.
Result<> read_windows(const ModelConfig& config, DecoderSpec* spec) {
  BOLIDE_TRY(const bool slides, config.boolean_or("use_sliding_window", false));
  BOLIDE_TRY(const int64_t window, read_sliding_window(config));
  if (!slides || window == 0) return {};
  BOLIDE_TRY(const std::vector<std::string> types, config.layer_types());
  if (!types.empty() && static_cast<int64_t>(types.size()) != spec->layers)
    return config.field_error("layer_types", fmt::format("has {} entries for {} layers", types.size(), spec->layers));
  BOLIDE_TRY(const int64_t full_layers, config.integer_or("max_window_layers", spec->layers));
  spec->window.assign(static_cast<size_t>(spec->layers), 0);
  for (int64_t l = 0; l < spec->layers; ++l) {
    const bool sliding = types.empty() ? l >= full_layers : types[static_cast<size_t>(l)] == "sliding_attention";
    if (sliding) spec->window[static_cast<size_t>(l)] = window;
  }
  return {};
}

Result<DecoderSpec> parse_qwen2(const ModelConfig& config) {
  BOLIDE_TRY(DecoderSpec spec, parse_llama_like(config));
  spec.qkv_bias = true;
  BOLIDE_TRY(read_windows(config, &spec));
  return spec;
}

Result<DecoderSpec> parse_qwen3(const ModelConfig& config) {
  BOLIDE_TRY(DecoderSpec spec, parse_llama_like(config));
  BOLIDE_TRY(const bool attention_bias, config.boolean_or("attention_bias", false));
  spec.qkv_bias = spec.out_bias = attention_bias;
  spec.qk_norm = true;
  BOLIDE_TRY(read_windows(config, &spec));
  return spec;
}

}  // namespace

extern const Family kQwen2{.name = "qwen2",
                           .architectures = kQwen2Architectures,
                           .parse = parse_qwen2,
                           .weights = kLlamaWeights,
                           .gguf = {"qwen2"}};
extern const Family kQwen3{.name = "qwen3",
                           .architectures = kQwen3Architectures,
                           .parse = parse_qwen3,
                           .weights = kLlamaWeights,
                           .gguf = {"qwen3"}};

}  // namespace bolide
