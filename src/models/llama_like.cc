// The fields of config.json that decoder families share.
#include <fmt/format.h>

#include "models/decoder.h"

namespace bolide {
namespace {

// Beyond these no published model comes near, and products of them still fit 64 bits.
constexpr int64_t kDimMax = 1 << 20;
constexpr int64_t kLayersMax = 100000;
constexpr int64_t kVocabMax = 1 << 26;

}  // namespace

Result<ActKind> read_act(const ModelConfig& config, std::string_view otherwise) {
  BOLIDE_TRY(const std::string name, config.string_or("hidden_act", std::string(otherwise)));
  if (name == "silu" || name == "swish") return ActKind::kSilu;
  if (name == "gelu") return ActKind::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return ActKind::kGeluTanh;
  if (name == "relu") return ActKind::kRelu;
  return config.field_error("hidden_act",
                            fmt::format("'{}' is not supported; there are silu, gelu, gelu_pytorch_tanh, relu", name),
                            Code::kUnsupported);
}

Result<int64_t> read_sliding_window(const ModelConfig& config) {
  BOLIDE_TRY(const auto window, config.optional_integer_in("sliding_window", 0, INT32_MAX));
  return window.value_or(0);
}

Result<DecoderSpec> parse_sizes(const ModelConfig& config) {
  DecoderSpec spec;
  BOLIDE_TRY(spec.layers, config.integer_in("num_hidden_layers", 1, kLayersMax));
  BOLIDE_TRY(spec.embed_dim, config.integer_in("hidden_size", 1, kDimMax));
  spec.ffn_dim = 4 * spec.embed_dim;
  if (config.has("intermediate_size")) {
    BOLIDE_TRY(spec.ffn_dim, config.integer_in("intermediate_size", 1, kDimMax));
  }
  BOLIDE_TRY(spec.heads, config.integer_in("num_attention_heads", 1, kDimMax));
  BOLIDE_TRY(spec.kv_heads, config.integer_or("num_key_value_heads", spec.heads));
  if (spec.kv_heads < 1 || spec.heads % spec.kv_heads != 0)
    return config.field_error("num_key_value_heads",
                              fmt::format("{} does not divide num_attention_heads, {}", spec.kv_heads, spec.heads));
  BOLIDE_TRY(const auto head_dim, config.optional_integer("head_dim"));
  if (!head_dim.has_value() && spec.embed_dim % spec.heads != 0)
    return config.field_error(
        "num_attention_heads",
        fmt::format("{} does not divide hidden_size, {}, and there is no head_dim", spec.heads, spec.embed_dim));
  spec.head_dim = head_dim.value_or(spec.embed_dim / spec.heads);
  if (spec.head_dim < 1 || spec.head_dim > 4096)
    return config.field_error("head_dim", fmt::format("{} is not between 1 and 4096", spec.head_dim));
  BOLIDE_TRY(spec.vocab, config.integer_in("vocab_size", 1, kVocabMax));
  BOLIDE_TRY(spec.context_max, config.integer_or("max_position_embeddings", 2048));
  if (spec.context_max < 1) return config.field_error("max_position_embeddings", "is not positive");
  return spec;
}

Result<DecoderSpec> parse_llama_like(const ModelConfig& config) {
  BOLIDE_TRY(DecoderSpec spec, parse_sizes(config));
  BOLIDE_TRY(spec.ffn_dim, config.integer_in("intermediate_size", 1, kDimMax));
  BOLIDE_TRY(const double eps, config.number_in("rms_norm_eps", 1e-6, kNormEpsilonRange));
  spec.norm_eps = static_cast<float>(eps);
  BOLIDE_TRY(spec.act, read_act(config, "silu"));
  BOLIDE_TRY(spec.tied_head, config.boolean_or("tie_word_embeddings", false));
  BOLIDE_TRY(const RopeConfig rope, config.rope());
  BOLIDE_TRY(spec.rope, make_rope(rope, spec.head_dim, spec.context_max).context(config.source()));
  return spec;
}

}  // namespace bolide
