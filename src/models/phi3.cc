// Phi-3 decoders (arXiv:2404.14219): fused qkv and gate|up tensors, partial rotary, longrope, a sliding window.
#include "models/families.h"

namespace bolide {
namespace {

constexpr std::string_view kArchitectures[] = {"Phi3ForCausalLM"};

constexpr WeightRule kWeights[] = {
    {Slot::kEmbed, "model.embed_tokens"},
    {Slot::kAttnNorm, "model.layers.{l}.input_layernorm"},
    {Slot::kQ, "model.layers.{l}.self_attn.qkv_proj", Rows::kQ},
    {Slot::kK, "model.layers.{l}.self_attn.qkv_proj", Rows::kK},
    {Slot::kV, "model.layers.{l}.self_attn.qkv_proj", Rows::kV},
    {Slot::kOut, "model.layers.{l}.self_attn.o_proj"},
    {Slot::kFfnNorm, "model.layers.{l}.post_attention_layernorm"},
    {Slot::kGate, "model.layers.{l}.mlp.gate_up_proj", Rows::kGate},
    {Slot::kUp, "model.layers.{l}.mlp.gate_up_proj", Rows::kUp},
    {Slot::kDown, "model.layers.{l}.mlp.down_proj"},
    {Slot::kFinalNorm, "model.norm"},
    {Slot::kHead, "lm_head"},
};

Result<DecoderSpec> parse_phi3(const ModelConfig& config) {
  BOLIDE_TRY(DecoderSpec spec, parse_llama_like(config));
  BOLIDE_TRY(const int64_t window, read_sliding_window(config));
  spec.window.assign(static_cast<size_t>(spec.layers), window);
  return spec;
}

}  // namespace

extern const Family kPhi3{
    .name = "phi3", .architectures = kArchitectures, .parse = parse_phi3, .weights = kWeights, .gguf = {"phi3"}};

}  // namespace bolide
