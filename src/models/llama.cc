// Llama decoders: Llama 2, 3 and 3.1 (arXiv:2307.09288, arXiv:2407.21783), SmolLM2 (arXiv:2502.02737), Mistral
// (arXiv:2310.06825, with its sliding window).
#include "models/llama.h"
#include "models/families.h"

namespace bolide {
namespace {

constexpr std::string_view kLlamaArchitectures[] = {"LlamaForCausalLM"};
constexpr std::string_view kMistralArchitectures[] = {"MistralForCausalLM"};

Result<DecoderSpec> parse_llama(const ModelConfig& config) {
  BOLIDE_TRY(DecoderSpec spec, parse_llama_like(config));
  BOLIDE_TRY(const bool attention_bias, config.boolean_or("attention_bias", false));
  spec.qkv_bias = spec.out_bias = attention_bias;
  BOLIDE_TRY(spec.ffn_bias, config.boolean_or("mlp_bias", false));
  return spec;
}

Result<DecoderSpec> parse_mistral(const ModelConfig& config) {
  BOLIDE_TRY(DecoderSpec spec, parse_llama_like(config));
  BOLIDE_TRY(const int64_t window, read_sliding_window(config));
  spec.window.assign(static_cast<size_t>(spec.layers), window);
  return spec;
}

}  // namespace

extern const Family kLlama{.name = "llama",
                           .architectures = kLlamaArchitectures,
                           .parse = parse_llama,
                           .weights = kLlamaWeights,
                           .gguf = {"llama"}};
extern const Family kMistral{
    .name = "mistral", .architectures = kMistralArchitectures, .parse = parse_mistral, .weights = kLlamaWeights};

}  // namespace bolide
