// Configuration against tensors: a wrong count is found here, with a sentence, before anything is sized by it.
#include <fmt/format.h>

#include "load/load.h"

namespace bolide {
namespace {

constexpr int64_t kLayersMax = 100'000;
constexpr int64_t kDimMax = int64_t{1} << 31;
constexpr int64_t kHeadDimMax = int64_t{1} << 20;

// One dimension of one tensor, if the tensor is there, must be `value`; `field` is what says so.
Result<> expect_dim(const ModelConfig& config, const WeightSource& weights, const std::string& name, int axis,
                    int64_t value, std::string_view field) {
  const WeightInfo* info = weights.find(name);
  if (info == nullptr) return {};
  if (axis >= info->shape.rank)
    return error(Code::kInvalid, fmt::format("{}: tensor {}: has shape {}, expected {} dimensions", weights.label(),
                                             name, to_string(info->shape), axis + 1));
  if (info->shape[axis] == value) return {};
  return config.field_error(field, fmt::format("makes {} for dimension {} of tensor {}, which has shape {}", value,
                                               axis, name, to_string(info->shape)));
}

Result<> check_layers(const ModelConfig& config, const WeightSource& weights, int64_t layers) {
  const auto norm = [](int64_t l) { return fmt::format("model.layers.{}.input_layernorm.weight", l); };
  if (!weights.has(norm(0))) return {};  // a family with other names; its own rules will say what is missing
  int64_t present = 1;
  while (weights.has(norm(present))) ++present;
  if (present == layers) return {};
  return config.field_error(
      "num_hidden_layers", fmt::format("is {}, but {} has the tensors of {} layers", layers, weights.label(), present));
}

}  // namespace

Result<> check_config_against_weights(const ModelConfig& config, const WeightSource& weights) {
  BOLIDE_TRY(const int64_t layers, config.integer_in("num_hidden_layers", 1, kLayersMax));
  BOLIDE_TRY(const int64_t hidden, config.integer_in("hidden_size", 1, kDimMax));
  BOLIDE_TRY(const int64_t heads, config.integer_in("num_attention_heads", 1, kDimMax));
  BOLIDE_TRY(const int64_t vocabulary, config.integer_in("vocab_size", 1, kDimMax));
  int64_t kv_heads = heads;
  if (config.has("num_key_value_heads")) {
    BOLIDE_TRY(kv_heads, config.integer_in("num_key_value_heads", 1, heads));
  }
  if (heads % kv_heads != 0)
    return config.field_error("num_key_value_heads", fmt::format("is {}, no divisor of the {} heads", kv_heads, heads));
  int64_t head_dim = hidden / heads;
  if (config.has("head_dim")) {
    BOLIDE_TRY(head_dim, config.integer_in("head_dim", 1, kHeadDimMax));
  } else if (hidden % heads != 0) {
    return config.field_error("num_attention_heads", fmt::format("is {}, no divisor of hidden_size {}", heads, hidden));
  }
  // Products of two fit, and so does three times heads * head_dim.
  BOLIDE_TRY(check_layers(config, weights, layers));
  BOLIDE_TRY(expect_dim(config, weights, "model.embed_tokens.weight", 0, vocabulary, "vocab_size"));
  BOLIDE_TRY(expect_dim(config, weights, "model.embed_tokens.weight", 1, hidden, "hidden_size"));
  BOLIDE_TRY(expect_dim(config, weights, "lm_head.weight", 0, vocabulary, "vocab_size"));
  BOLIDE_TRY(expect_dim(config, weights, "lm_head.weight", 1, hidden, "hidden_size"));
  BOLIDE_TRY(expect_dim(config, weights, "model.norm.weight", 0, hidden, "hidden_size"));
  for (int64_t l = 0; l < layers; ++l) {
    const std::string prefix = fmt::format("model.layers.{}.", l);
    if (!weights.has(prefix + "input_layernorm.weight")) break;
    const std::string attention = prefix + "self_attn.";
    BOLIDE_TRY(expect_dim(config, weights, prefix + "input_layernorm.weight", 0, hidden, "hidden_size"));
    BOLIDE_TRY(expect_dim(config, weights, attention + "q_proj.weight", 0, heads * head_dim,
                          "num_attention_heads * head_dim"));
    BOLIDE_TRY(expect_dim(config, weights, attention + "q_proj.weight", 1, hidden, "hidden_size"));
    for (const char* kv : {"k_proj.weight", "v_proj.weight"})
      BOLIDE_TRY(expect_dim(config, weights, attention + kv, 0, kv_heads * head_dim, "num_key_value_heads * head_dim"));
    BOLIDE_TRY(expect_dim(config, weights, attention + "qkv_proj.weight", 0, (heads + 2 * kv_heads) * head_dim,
                          "(num_attention_heads + 2 * num_key_value_heads) * head_dim"));
    BOLIDE_TRY(expect_dim(config, weights, attention + "o_proj.weight", 1, heads * head_dim,
                          "num_attention_heads * head_dim"));
    if (!config.has("intermediate_size")) continue;
    BOLIDE_TRY(const int64_t ffn, config.integer_in("intermediate_size", 1, kDimMax));
    BOLIDE_TRY(expect_dim(config, weights, prefix + "mlp.gate_proj.weight", 0, ffn, "intermediate_size"));
    BOLIDE_TRY(expect_dim(config, weights, prefix + "mlp.up_proj.weight", 0, ffn, "intermediate_size"));
    BOLIDE_TRY(expect_dim(config, weights, prefix + "mlp.gate_up_proj.weight", 0, 2 * ffn, "2 * intermediate_size"));
    BOLIDE_TRY(expect_dim(config, weights, prefix + "mlp.down_proj.weight", 1, ffn, "intermediate_size"));
  }
  return {};
}

}  // namespace bolide
