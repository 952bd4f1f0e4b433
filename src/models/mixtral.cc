// Mixtral decoders (arXiv:2401.04088): Mistral's attention, a mixture of experts in place of the MLP.
#include "models/families.h"

namespace bolide {
namespace {

constexpr std::string_view kArchitectures[] = {"MixtralForCausalLM"};

constexpr WeightRule kWeights[] = {
    {Slot::kEmbed, "model.embed_tokens"},
    {Slot::kAttnNorm, "model.layers.{l}.input_layernorm"},
    {Slot::kQ, "model.layers.{l}.self_attn.q_proj"},
    {Slot::kK, "model.layers.{l}.self_attn.k_proj"},
    {Slot::kV, "model.layers.{l}.self_attn.v_proj"},
    {Slot::kOut, "model.layers.{l}.self_attn.o_proj"},
    {Slot::kFfnNorm, "model.layers.{l}.post_attention_layernorm"},
    {Slot::kRouter, "model.layers.{l}.block_sparse_moe.gate"},
    {Slot::kExpertGate, "model.layers.{l}.block_sparse_moe.experts.{e}.w1"},
    {Slot::kExpertUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w3"},
    {Slot::kExpertDown, "model.layers.{l}.block_sparse_moe.experts.{e}.w2"},
    {Slot::kFinalNorm, "model.norm"},
    {Slot::kHead, "lm_head"},
};

Result<DecoderSpec> parse_mixtral(const ModelConfig& config) {
  BOLIDE_TRY(DecoderSpec spec, parse_llama_like(config));
  BOLIDE_TRY(spec.experts, config.integer_in("num_local_experts", 1, 4096));
  BOLIDE_TRY(spec.experts_per_token, config.integer_in("num_experts_per_tok", 1, spec.experts));
  BOLIDE_TRY(const int64_t window, read_sliding_window(config));
  spec.window.assign(static_cast<size_t>(spec.layers), window);
  return spec;
}

}  // namespace

extern const Family kMixtral{
    .name = "mixtral", .architectures = kArchitectures, .parse = parse_mixtral, .weights = kWeights};

}  // namespace bolide
