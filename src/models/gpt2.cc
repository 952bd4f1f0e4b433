// GPT-2 decoders (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"): LayerNorm, learned
// positions, biases on every product, an MLP without a gate, weights stored [in, out] with q, k and v fused.
#include "models/families.h"

namespace bolide {
namespace {

constexpr std::string_view kArchitectures[] = {"GPT2LMHeadModel"};

constexpr FieldAlias kFields[] = {
    {"hidden_size", "n_embd"},
    {"num_hidden_layers", "n_layer"},
    {"num_attention_heads", "n_head"},
    {"intermediate_size", "n_inner"},
    {"max_position_embeddings", "n_positions"},
    {"hidden_act", "activation_function"},
    {"layer_norm_eps", "layer_norm_epsilon"},
};

constexpr WeightRule kWeights[] = {
    {Slot::kEmbed, "wte"},
    {Slot::kPositions, "wpe"},
    {Slot::kAttnNorm, "h.{l}.ln_1"},
    {Slot::kQ, "h.{l}.attn.c_attn", Rows::kQ, Layout::kInOut},
    {Slot::kK, "h.{l}.attn.c_attn", Rows::kK, Layout::kInOut},
    {Slot::kV, "h.{l}.attn.c_attn", Rows::kV, Layout::kInOut},
    {Slot::kOut, "h.{l}.attn.c_proj", Rows::kAll, Layout::kInOut},
    {Slot::kFfnNorm, "h.{l}.ln_2"},
    {Slot::kUp, "h.{l}.mlp.c_fc", Rows::kAll, Layout::kInOut},
    {Slot::kDown, "h.{l}.mlp.c_proj", Rows::kAll, Layout::kInOut},
    {Slot::kFinalNorm, "ln_f"},
    {Slot::kHead, "lm_head"},
};

// Causal masks, which older files store as buffers.
constexpr std::string_view kLeftovers[] = {".attn.bias", ".attn.masked_bias"};

Result<DecoderSpec> parse_gpt2(const ModelConfig& config) {
  for (const std::string_view key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    BOLIDE_TRY(const bool wanted, config.boolean_or(key, false));
    if (wanted) return config.field_error(key, "true is not supported", Code::kUnsupported);
  }
  BOLIDE_TRY(DecoderSpec spec, parse_sizes(config));
  if (!config.has("max_position_embeddings")) spec.context_max = 1024;
  spec.norm = NormKind::kLayer;
  BOLIDE_TRY(const double eps, config.number_or("layer_norm_eps", 1e-5));
  spec.norm_eps = static_cast<float>(eps);
  spec.learned_positions = true;
  spec.has_rope = false;
  spec.qkv_bias = spec.out_bias = spec.ffn_bias = true;
  BOLIDE_TRY(const bool scaled, config.boolean_or("scale_attn_weights", true));
  if (!scaled) spec.attention_scale = 1;
  spec.gated = false;
  BOLIDE_TRY(spec.act, read_act(config, "gelu_new"));
  BOLIDE_TRY(spec.tied_head, config.boolean_or("tie_word_embeddings", true));
  return spec;
}

}  // namespace

extern const Family kGpt2{.name = "gpt2",
                          .architectures = kArchitectures,
                          .parse = parse_gpt2,
                          .weights = kWeights,
                          .fields = kFields,
                          .prefix = "transformer.",
                          .leftovers = kLeftovers,
                          .gguf = {"gpt2", "gelu_pytorch_tanh"}};

}  // namespace bolide
