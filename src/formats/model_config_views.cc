// The normalised views of a configuration: rotary embedding, generation defaults, quantisation.
#include <fmt/format.h>

#include <array>

#include "formats/model_config.h"

namespace bolide {
namespace {

struct RopeName {
  std::string_view name;
  RopeType type;
};
// "su" is the name that the first Phi-3 checkpoints have for longrope.
constexpr std::array kRopeNames = {RopeName{"default", RopeType::kDefault}, RopeName{"linear", RopeType::kLinear},
                                   RopeName{"dynamic", RopeType::kDynamic}, RopeName{"yarn", RopeType::kYarn},
                                   RopeName{"llama3", RopeType::kLlama3},   RopeName{"longrope", RopeType::kLongRope},
                                   RopeName{"su", RopeType::kLongRope}};

Result<RopeType> rope_type(const ModelConfig& scaling) {
  const std::string_view key = scaling.has("rope_type") ? "rope_type" : "type";
  BOLIDE_TRY(const auto name, scaling.string_or(key, "default"));
  for (const RopeName& row : kRopeNames)
    if (row.name == name) return row.type;
  return scaling.field_error(
      key, fmt::format("{:.60} is not supported; known are default, linear, dynamic, yarn, llama3, longrope", name),
      Code::kUnsupported);
}

// The object with the scaling parameters, of either style; std::nullopt if there is none.
Result<std::optional<ModelConfig>> scaling_object(const ModelConfig& config, std::string_view layer_type) {
  if (!config.has("rope_parameters")) return config.optional_object("rope_scaling");
  BOLIDE_TRY(auto parameters, config.object("rope_parameters"));
  // Given per layer type, and asked without one: the full attention's.
  const std::string_view type = layer_type.empty() ? "full_attention" : layer_type;
  if (parameters.has(type)) return parameters.optional_object(type);
  return std::optional(std::move(parameters));
}

Result<int64_t> positive_context(const ModelConfig& config, std::string_view key, int64_t value) {
  if (value < 1) return config.field_error(key, fmt::format("is {}, expected at least 1", value));
  return value;
}

Result<> read_long_factors(const ModelConfig& scaling, RopeConfig& rope) {
  BOLIDE_TRY(rope.short_factor, scaling.numbers("short_factor"));
  BOLIDE_TRY(rope.long_factor, scaling.numbers("long_factor"));
  if (rope.short_factor.size() != rope.long_factor.size())
    return scaling.field_error("long_factor", fmt::format("has {} numbers, short_factor {}", rope.long_factor.size(),
                                                          rope.short_factor.size()));
  for (const auto& [key, list] : {std::pair{"short_factor", &rope.short_factor}, {"long_factor", &rope.long_factor}})
    for (size_t i = 0; i < list->size(); ++i)
      if (const std::string problem = range_problem((*list)[i], kRopeFactorRange); !problem.empty())
        return scaling.field_error(fmt::format("{}[{}]", key, i), problem);
  return {};
}

}  // namespace

std::string_view to_string(RopeType type) {
  for (const RopeName& row : kRopeNames)
    if (row.type == type) return row.name;
  return "";
}

Result<RopeConfig> ModelConfig::rope(std::string_view layer_type) const {
  RopeConfig rope;
  // The one family of ours whose model class has another default.
  BOLIDE_TRY(const auto model_type, string_or("model_type", ""));
  if (model_type == "mixtral") rope.theta = 1e6;
  BOLIDE_TRY(rope.theta, number_in("rope_theta", rope.theta, kRopeThetaRange));
  BOLIDE_TRY(rope.partial_rotary_factor, number_in("partial_rotary_factor", 1.0, kPartialRotaryRange));
  BOLIDE_TRY(const auto scaling, scaling_object(*this, layer_type));
  if (!scaling) return rope;
  BOLIDE_TRY(rope.theta, scaling->number_in("rope_theta", rope.theta, kRopeThetaRange));
  BOLIDE_TRY(rope.partial_rotary_factor,
             scaling->number_in("partial_rotary_factor", rope.partial_rotary_factor, kPartialRotaryRange));
  BOLIDE_TRY(rope.type, rope_type(*scaling));
  if (rope.type == RopeType::kDefault) return rope;

  // Phi-3 keeps the original context outside the scaling object, and that one has priority. Without either, scaling is
  // relative to the context, as it always is for linear and dynamic.
  BOLIDE_TRY(const auto context, optional_integer("max_position_embeddings"));
  std::optional<int64_t> original;
  if (rope.type != RopeType::kLinear && rope.type != RopeType::kDynamic) {
    BOLIDE_TRY(original, optional_integer("original_max_position_embeddings"));
    if (!original) {
      BOLIDE_TRY(original, scaling->optional_integer("original_max_position_embeddings"));
    }
  }
  if (!original && !context)
    return field_error("max_position_embeddings", "is missing, needed for a scaled rotary embedding");
  BOLIDE_TRY(rope.original_context,
             positive_context(*this, "original_max_position_embeddings", original ? *original : *context));
  // The scale of attention divides by its logarithm.
  if (rope.type == RopeType::kLongRope && rope.original_context < 2)
    return field_error("original_max_position_embeddings", "is 1, expected at least 2 for longrope");

  const bool has_ratio = rope.type == RopeType::kLongRope || rope.type == RopeType::kYarn;
  double ratio = 1.0;
  if (has_ratio && context) ratio = static_cast<double>(*context) / static_cast<double>(rope.original_context);
  if (!has_ratio && !scaling->has("factor"))
    return scaling->field_error("factor", fmt::format("is missing, needed for {}", to_string(rope.type)));
  BOLIDE_TRY(rope.factor, scaling->number_in("factor", ratio, kRopeFactorRange));
  if (const std::string problem = range_problem(rope.factor, kRopeFactorRange); !problem.empty())
    return field_error("max_position_embeddings",
                       fmt::format("is {}, which over original_max_position_embeddings, {}, {}", *context,
                                   rope.original_context, problem));
  BOLIDE_TRY(rope.attention_factor, scaling->optional_number_in("attention_factor", kAttentionFactorRange));
  if (rope.type == RopeType::kLongRope) {
    BOLIDE_TRY(read_long_factors(*scaling, rope));
  }
  if (rope.type == RopeType::kLlama3) {
    BOLIDE_TRY(rope.low_freq_factor, scaling->number_in("low_freq_factor", rope.low_freq_factor, kRopeFactorRange));
    BOLIDE_TRY(rope.high_freq_factor, scaling->number_in("high_freq_factor", rope.high_freq_factor, kRopeFactorRange));
    if (rope.high_freq_factor <= rope.low_freq_factor)
      return scaling->field_error("high_freq_factor", "must be more than low_freq_factor");
  }
  if (rope.type == RopeType::kYarn) {
    BOLIDE_TRY(rope.beta_fast, scaling->number_in("beta_fast", rope.beta_fast, kRopeFactorRange));
    BOLIDE_TRY(rope.beta_slow, scaling->number_in("beta_slow", rope.beta_slow, kRopeFactorRange));
    BOLIDE_TRY(rope.mscale, scaling->optional_number_in("mscale", kMscaleRange));
    BOLIDE_TRY(rope.mscale_all_dim, scaling->optional_number_in("mscale_all_dim", kMscaleRange));
    BOLIDE_TRY(rope.truncate, scaling->boolean_or("truncate", true));
  }
  return rope;
}

namespace {

Result<std::optional<int64_t>> first_integer(const ModelConfig* first, const ModelConfig& second,
                                             std::string_view key) {
  if (first != nullptr && first->has(key)) return first->optional_integer(key);
  return second.optional_integer(key);
}

// An id, where -1 says that there is none.
Result<std::optional<int64_t>> first_id(const ModelConfig* first, const ModelConfig& second, std::string_view key) {
  BOLIDE_TRY(auto id, first_integer(first, second, key));
  if (id && *id < 0) id.reset();
  return id;
}

}  // namespace

Result<GenerationConfig> read_generation_config(const ModelConfig* generation, const ModelConfig& config) {
  GenerationConfig out;
  const ModelConfig& eos_from = generation != nullptr && generation->has("eos_token_id") ? *generation : config;
  if (eos_from.has("eos_token_id")) {
    BOLIDE_TRY(out.eos_ids, eos_from.integers("eos_token_id"));
  }
  std::erase_if(out.eos_ids, [](int64_t id) { return id < 0; });
  BOLIDE_TRY(out.bos_id, first_id(generation, config, "bos_token_id"));
  BOLIDE_TRY(out.pad_id, first_id(generation, config, "pad_token_id"));
  if (generation == nullptr) return out;
  const ModelConfig& from = *generation;
  BOLIDE_TRY(out.temperature, from.optional_number_in("temperature", kTemperatureRange));
  BOLIDE_TRY(out.top_k, from.optional_integer_in("top_k", -1, INT32_MAX));
  BOLIDE_TRY(out.top_p, from.optional_number_in("top_p", kShareRange));
  BOLIDE_TRY(out.min_p, from.optional_number_in("min_p", kShareRange));
  BOLIDE_TRY(out.repetition_penalty, from.optional_number_in("repetition_penalty", kRepetitionPenaltyRange));
  BOLIDE_TRY(out.presence_penalty, from.optional_number_in("presence_penalty", kPenaltyRange));
  BOLIDE_TRY(out.frequency_penalty, from.optional_number_in("frequency_penalty", kPenaltyRange));
  BOLIDE_TRY(out.do_sample, from.optional_boolean("do_sample"));
  BOLIDE_TRY(out.tokens_max, from.optional_integer("max_new_tokens"));
  return out;
}

std::string_view to_string(QuantMethod method) {
  switch (method) {
    case QuantMethod::kGptq: return "gptq";
    case QuantMethod::kAwq: return "awq";
    case QuantMethod::kCompressedFloat8: return "compressed-tensors float-quantized";
    case QuantMethod::kFp8: return "fp8";
  }
  return "";
}

namespace {

Result<> read_gptq(const ModelConfig& from, QuantizationConfig& out) {
  out.method = QuantMethod::kGptq;
  BOLIDE_TRY(out.bits, from.integer("bits"));
  if (out.bits != 2 && out.bits != 4 && out.bits != 8)
    return from.field_error("bits", fmt::format("{} is not supported; known are 2, 4 and 8", out.bits),
                            Code::kUnsupported);
  BOLIDE_TRY(out.group_size, from.integer("group_size"));
  BOLIDE_TRY(out.desc_act, from.boolean_or("desc_act", false));
  BOLIDE_TRY(out.symmetric, from.boolean_or("sym", true));
  BOLIDE_TRY(const auto format, from.string_or("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    return from.field_error("checkpoint_format",
                            fmt::format("{:.60} is not supported; known are gptq and gptq_v2", format),
                            Code::kUnsupported);
  out.zero_offset = format == "gptq";
  return {};
}

Result<> read_awq(const ModelConfig& from, QuantizationConfig& out) {
  out.method = QuantMethod::kAwq;
  BOLIDE_TRY(out.bits, from.integer(from.has("w_bit") ? "w_bit" : "bits"));
  if (out.bits != 4)
    return from.field_error("bits", fmt::format("{} is not supported; known is 4", out.bits), Code::kUnsupported);
  BOLIDE_TRY(out.group_size, from.integer(from.has("q_group_size") ? "q_group_size" : "group_size"));
  BOLIDE_TRY(out.zero_point, from.boolean_or("zero_point", true));
  BOLIDE_TRY(out.version, from.string_or("version", "gemm"));
  if (out.version != "gemm" && out.version != "GEMM")
    return from.field_error("version", fmt::format("{:.60} is not supported; known is gemm", out.version),
                            Code::kUnsupported);
  if (from.has("modules_to_not_convert")) {
    BOLIDE_TRY(out.ignore, from.strings("modules_to_not_convert"));
  }
  return {};
}

Result<> read_compressed(const ModelConfig& from, QuantizationConfig& out) {
  out.method = QuantMethod::kCompressedFloat8;
  out.bits = 8;
  BOLIDE_TRY(const auto format, from.string_or("format", ""));
  if (format != "float-quantized")
    return from.field_error("format", fmt::format("{:.60} is not supported; known is float-quantized", format),
                            Code::kUnsupported);
  if (from.has("ignore")) {
    BOLIDE_TRY(out.ignore, from.strings("ignore"));
  }
  BOLIDE_TRY(const auto groups, from.object("config_groups"));
  const auto names = groups.keys();
  if (names.size() != 1)
    return from.field_error("config_groups", fmt::format("has {} groups, only one is supported", names.size()),
                            Code::kUnsupported);
  BOLIDE_TRY(const auto group, groups.object(names.front()));
  BOLIDE_TRY(const auto weights, group.object("weights"));
  BOLIDE_TRY(const auto type, weights.string_or("type", "float"));
  BOLIDE_TRY(const auto bits, weights.integer_or("num_bits", 8));
  BOLIDE_TRY(const auto strategy, weights.string_or("strategy", "tensor"));
  if (type != "float" || bits != 8 || (strategy != "tensor" && strategy != "channel"))
    return weights.field_error(
        "strategy",
        fmt::format("{} bits of type {:.20} per {:.20} are not supported; known are 8-bit floats per tensor or channel",
                    bits, type, strategy),
        Code::kUnsupported);
  if (!group.has("input_activations")) return {};
  BOLIDE_TRY(const auto inputs, group.object("input_activations"));
  BOLIDE_TRY(const auto dynamic, inputs.boolean_or("dynamic", false));
  BOLIDE_TRY(const auto input_strategy, inputs.string_or("strategy", "token"));
  BOLIDE_TRY(const auto input_type, inputs.string_or("type", "float"));
  BOLIDE_TRY(const auto input_bits, inputs.integer_or("num_bits", 8));
  if (input_type != "float" || input_bits != 8)
    return inputs.field_error("num_bits",
                              fmt::format("inputs rounded to {} bits of type {:.20} are not supported; known are 8-bit "
                                          "floats",
                                          input_bits, input_type),
                              Code::kUnsupported);
  if (!dynamic || input_strategy != "token")
    return inputs.field_error(
        "strategy", "inputs rounded by fixed scales are not supported; known is dynamic per token", Code::kUnsupported);
  out.dynamic_inputs = true;
  return {};
}

Result<> read_fp8(const ModelConfig& from, QuantizationConfig& out) {
  out.method = QuantMethod::kFp8;
  out.bits = 8;
  BOLIDE_TRY(const auto scheme, from.string_or("activation_scheme", "dynamic"));
  if (scheme != "dynamic")
    return from.field_error("activation_scheme", fmt::format("{:.60} is not supported; known is dynamic", scheme),
                            Code::kUnsupported);
  if (from.has("weight_block_size")) {
    BOLIDE_TRY(out.block_size, from.integers("weight_block_size"));
    if (out.block_size.size() != 2 || out.block_size[0] < 1 || out.block_size[1] < 1)
      return from.field_error("weight_block_size", "expected two numbers of at least 1");
  }
  if (from.has("modules_to_not_convert")) {
    BOLIDE_TRY(out.ignore, from.strings("modules_to_not_convert"));
  }
  return {};
}

}  // namespace

Result<std::optional<QuantizationConfig>> ModelConfig::quantization() const {
  const std::string_view key = has("quantization_config") ? "quantization_config" : "compression_config";
  if (!has(key)) return std::optional<QuantizationConfig>();
  BOLIDE_TRY(const auto from, object(key));
  BOLIDE_TRY(const auto method, from.string("quant_method"));
  QuantizationConfig out;
  if (method == "gptq") {
    BOLIDE_TRY(read_gptq(from, out));
  } else if (method == "awq") {
    BOLIDE_TRY(read_awq(from, out));
  } else if (method == "compressed-tensors") {
    BOLIDE_TRY(read_compressed(from, out));
  } else if (method == "fp8") {
    BOLIDE_TRY(read_fp8(from, out));
  } else {
    return from.field_error(
        "quant_method",
        fmt::format("{:.60} is not supported; known are gptq, awq, compressed-tensors (float-quantized) and fp8",
                    method),
        Code::kUnsupported);
  }
  if ((out.method == QuantMethod::kGptq || out.method == QuantMethod::kAwq) && out.group_size != -1 &&
      out.group_size < 1)
    return from.field_error("group_size", fmt::format("is {}, expected -1 or at least 1", out.group_size));
  return std::optional(std::move(out));
}

}  // namespace bolide
