// A GGUF file's metadata as Hugging Face's configuration fields.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "load/gguf_names.h"
#include "load/load.h"
#include "models/families.h"

namespace bolide {
namespace {

using Json = nlohmann::json;

constexpr int64_t kCountMax = INT32_MAX;
constexpr int64_t kExpertsMax = 4096;
constexpr int64_t kRopeFactorsMax = 65536;
constexpr NumberRange kRopeFactorOrNone{0, kRopeFactorRange.most};  // 0: no scaling; the configuration has the least

// Control tokens that end a model's turn, by the texts that published vocabularies have for them. GGUF names one
// end-of-text id and perhaps one end-of-turn id; files often lack the second.
constexpr std::array<std::string_view, 8> kEndTokens = {"<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",    "<|end|>",
                                                        "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<EOT>"};

Result<std::optional<double>> number_in(const GgufHeader& header, const std::string& label, const std::string& key,
                                        NumberRange range) {
  BOLIDE_TRY(const auto value, header.number(key, label));
  if (!value) return value;
  if (const std::string problem = range_problem(*value, range); !problem.empty())
    return error(Code::kInvalid, fmt::format("{}: {}: {}", label, key, problem));
  return value;
}

// Reads keys under the architecture's prefix, and collects the fields.
class Reader {
 public:
  Reader(const GgufHeader& header, const std::string& label, std::string architecture)
      : header_(header), label_(label), architecture_(std::move(architecture)) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  Result<std::optional<int64_t>> integer(std::string_view name) const { return header_.integer(key(name), label_); }
  Result<std::optional<double>> number(std::string_view name, NumberRange range) const {
    return number_in(header_, label_, key(name), range);
  }
  Result<std::optional<std::string>> string(std::string_view name) const { return header_.string(key(name), label_); }

  // A count that may be given once or for each layer, where all must be the same.
  Result<int64_t> count(std::string_view name) const {
    const GgufValue* value = header_.find(key(name));
    if (value == nullptr) return error(Code::kInvalid, fmt::format("{}: {} is missing", label_, key(name)));
    std::optional<int64_t> single = value->integer();
    if (value->is_array()) {
      const auto list = value->integers();
      if (list && !list->empty()) {
        if (std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end())
          return error(Code::kUnsupported,
                       fmt::format("{}: {}: differs from layer to layer, which is not supported", label_, key(name)));
        single = list->front();
      }
    }
    if (!single || *single < 1 || *single > kCountMax)
      return error(Code::kInvalid,
                   fmt::format("{}: {}: expected an integer from 1 to {}", label_, key(name), kCountMax));
    return *single;
  }

  bool has(std::string_view name) const { return header_.find(key(name)) != nullptr; }

 private:
  const GgufHeader& header_;
  const std::string& label_;
  std::string architecture_;
};

Result<Json> rope_fields(const Reader& from, const GgufSource& source, int64_t head_dim) {
  Json rope = {{"rope_type", "default"}};
  BOLIDE_TRY(const auto theta, from.number("rope.freq_base", kRopeThetaRange));
  rope["rope_theta"] = theta.value_or(10000.0);
  BOLIDE_TRY(const auto rotated, from.integer("rope.dimension_count"));
  if (rotated && (*rotated < 2 || *rotated > head_dim || *rotated % 2 != 0))
    return error(Code::kInvalid, fmt::format("{}: {}: is {}, expected an even number from 2 to the head's size, {}",
                                             source.label(), from.key("rope.dimension_count"), *rotated, head_dim));
  if (rotated && *rotated < head_dim)
    rope["partial_rotary_factor"] = static_cast<double>(*rotated) / static_cast<double>(head_dim);
  BOLIDE_TRY(const auto original, from.integer("rope.scaling.original_context_length"));
  if (original && *original > 0) rope["original_max_position_embeddings"] = *original;
  BOLIDE_TRY(const auto attention, from.number("rope.scaling.attn_factor", kAttentionFactorRange));

  // Per-dimension divisors of the frequencies: one list (llama 3) or one for short and one for long contexts (phi 3).
  // One list is both.
  for (const auto& [short_name, long_name] : {std::pair{"rope_factors_short.weight", "rope_factors_long.weight"},
                                              {"rope_freqs.weight", "rope_freqs.weight"}}) {
    if (!source.has(short_name) || !source.has(long_name)) continue;
    for (const char* name : {short_name, long_name})
      if (source.find(name)->shape.elements() > kRopeFactorsMax)
        return error(Code::kInvalid, fmt::format("{}: tensor {}: has shape {}, far more than a head's size",
                                                 source.label(), name, to_string(source.find(name)->shape)));
    BOLIDE_TRY(const auto short_factors, read_floats(source, short_name));
    BOLIDE_TRY(const auto long_factors, read_floats(source, long_name));
    rope["rope_type"] = "longrope";
    rope["short_factor"] = short_factors;
    rope["long_factor"] = long_factors;
    rope["factor"] = 1.0;  // only decides about the scale of attention, which follows
    rope["attention_factor"] = attention.value_or(1.0);
    return rope;
  }

  BOLIDE_TRY(auto type, from.string("rope.scaling.type"));
  BOLIDE_TRY(auto factor, from.number("rope.scaling.factor", kRopeFactorOrNone));
  if (!factor) {
    BOLIDE_TRY(factor, from.number("rope.scale_linear", kRopeFactorOrNone));  // files of 2023
    if (factor && !type) type = "linear";
  }
  if (!type || *type == "none" || !factor || *factor == 1.0 || *factor == 0.0) return rope;
  rope["rope_type"] = *type;
  rope["factor"] = *factor;
  if (*type == "yarn") {
    // ggml multiplies yarn's own scale by this one.
    if (attention && *attention != 1.0 && *factor > 1)
      rope["attention_factor"] = *attention * (0.1 * std::log(*factor) + 1.0);
    BOLIDE_TRY(const auto fast, from.number("rope.scaling.yarn_beta_fast", kRopeFactorRange));
    BOLIDE_TRY(const auto slow, from.number("rope.scaling.yarn_beta_slow", kRopeFactorRange));
    if (fast) rope["beta_fast"] = *fast;
    if (slow) rope["beta_slow"] = *slow;
  }
  return rope;
}

// The family whose files say this of themselves. Mistral's and Mixtral's say "llama".
Result<const Family*> family_of(const std::string& architecture, const std::string& label) {
  std::string known;
  for (const Family* family : families()) {
    if (family->gguf.architecture.empty()) continue;
    if (family->gguf.architecture == architecture) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family->gguf.architecture);
  }
  return error(Code::kUnsupported, fmt::format("{}: general.architecture {:.60} is not supported; known are {} (llama "
                                               "is mistral and mixtral too)",
                                               label, architecture, known));
}

struct Parsed {
  Json config;
  GgufDims dims;
};

Result<Parsed> config_fields(const GgufSource& source, const Family& family) {
  const std::string_view architecture = family.gguf.architecture;
  const std::string& label = source.label();
  const Reader from(source.header(), label, std::string(architecture));
  Parsed parsed;
  GgufDims& dims = parsed.dims;
  dims.architecture = architecture;
  BOLIDE_TRY(dims.heads, from.count("attention.head_count"));
  dims.kv_heads = dims.heads;
  if (from.has("attention.head_count_kv")) {
    BOLIDE_TRY(dims.kv_heads, from.count("attention.head_count_kv"));
  }
  BOLIDE_TRY(const auto experts, from.integer("expert_count"));
  dims.experts = experts.value_or(0);
  if (dims.experts < 0 || dims.experts > kExpertsMax)
    return error(Code::kInvalid, fmt::format("{}: {}: is {}, expected 0 to {}", label, from.key("expert_count"),
                                             dims.experts, kExpertsMax));
  const bool is_mixtral = dims.experts > 0 && architecture == "llama";

  Json& config = parsed.config;
  BOLIDE_TRY(const auto window, from.integer("attention.sliding_window"));
  const bool has_window = window && *window > 0;
  config["architectures"] = Json::array({is_mixtral                              ? "MixtralForCausalLM"
                                         : has_window && architecture == "llama" ? "MistralForCausalLM"
                                                                                 : family.architectures.front()});
  config["model_type"] = is_mixtral ? "mixtral" : family.name;
  if (has_window) config["sliding_window"] = *window;
  if (has_window && architecture.starts_with("qwen")) config["use_sliding_window"] = true;

  BOLIDE_TRY(const auto hidden, from.count("embedding_length"));
  BOLIDE_TRY(config["num_hidden_layers"], from.count("block_count"));
  BOLIDE_TRY(config["max_position_embeddings"], from.count("context_length"));
  BOLIDE_TRY(config["intermediate_size"], from.count("feed_forward_length"));
  config["hidden_size"] = hidden;
  config["num_attention_heads"] = dims.heads;
  config["num_key_value_heads"] = dims.kv_heads;
  BOLIDE_TRY(const auto key_length, from.integer("attention.key_length"));
  BOLIDE_TRY(const auto value_length, from.integer("attention.value_length"));
  if (key_length && value_length && *key_length != *value_length)
    return error(Code::kUnsupported,
                 fmt::format("{}: {}: keys of {} and values of {} elements are not supported", label,
                             from.key("attention.value_length"), *key_length, *value_length));
  const int64_t head_dim = key_length.value_or(hidden / dims.heads);
  if (head_dim < 1)
    return error(Code::kInvalid, fmt::format("{}: {}: {} heads do not fit an embedding of {}", label,
                                             from.key("attention.head_count"), dims.heads, hidden));
  config["head_dim"] = head_dim;
  BOLIDE_TRY(const auto rms_epsilon, from.number("attention.layer_norm_rms_epsilon", kNormEpsilonRange));
  BOLIDE_TRY(const auto epsilon, from.number("attention.layer_norm_epsilon", kNormEpsilonRange));
  if (!rms_epsilon && !epsilon)
    return error(Code::kInvalid,
                 fmt::format("{}: {} is missing, and so is {}", label, from.key("attention.layer_norm_rms_epsilon"),
                             from.key("attention.layer_norm_epsilon")));
  if (rms_epsilon) config["rms_norm_eps"] = *rms_epsilon;
  if (epsilon) config["layer_norm_eps"] = *epsilon;
  BOLIDE_TRY(config["rope_parameters"], rope_fields(from, source, head_dim));
  if (dims.experts > 0) {
    config["num_local_experts"] = dims.experts;
    BOLIDE_TRY(config["num_experts_per_tok"], from.count("expert_used_count"));
  }

  const WeightInfo* embedding = source.find("token_embd.weight");
  if (embedding == nullptr) return error(Code::kInvalid, fmt::format("{}: has no tensor token_embd.weight", label));
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = !source.has("output.weight");
  config["attention_bias"] = source.has("blk.0.attn_q.bias") || source.has("blk.0.attn_qkv.bias");
  config["mlp_bias"] = source.has("blk.0.ffn_up.bias");
  config["hidden_act"] = family.gguf.act;
  return parsed;
}

GenerationConfig generation_of(const GgufTokenizer& tokenizer) {
  GenerationConfig generation;
  generation.bos_id = tokenizer.bos_id;
  generation.pad_id = tokenizer.padding_id;
  const auto add = [&](int64_t id) {
    auto& list = generation.eos_ids;
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  };
  for (const auto& id : {tokenizer.eos_id, tokenizer.eot_id, tokenizer.eom_id})
    if (id) add(*id);
  for (size_t i = 0; i < tokenizer.token_types.size(); ++i)
    if (tokenizer.token_types[i] == GgufTokenizer::kControl &&
        std::find(kEndTokens.begin(), kEndTokens.end(), tokenizer.tokens[i]) != kEndTokens.end())
      add(static_cast<int64_t>(i));
  return generation;
}

Result<> read_sampling(const GgufHeader& header, const std::string& label, GenerationConfig& generation) {
  BOLIDE_TRY(generation.temperature, number_in(header, label, "general.sampling.temp", kTemperatureRange));
  BOLIDE_TRY(generation.top_k, header.integer("general.sampling.top_k", label));
  if (generation.top_k && (*generation.top_k < -1 || *generation.top_k > INT32_MAX))
    return error(Code::kInvalid, fmt::format("{}: general.sampling.top_k: is {}, expected -1 to {}", label,
                                             *generation.top_k, INT32_MAX));
  BOLIDE_TRY(generation.top_p, number_in(header, label, "general.sampling.top_p", kShareRange));
  BOLIDE_TRY(generation.min_p, number_in(header, label, "general.sampling.min_p", kShareRange));
  BOLIDE_TRY(generation.repetition_penalty,
             number_in(header, label, "general.sampling.penalty_repeat", kRepetitionPenaltyRange));
  return {};
}

}  // namespace

Result<LoadedModel> load_gguf(const std::filesystem::path& file) {
  BOLIDE_TRY(auto source, GgufSource::open_file(file));
  return load_gguf(source);
}

Result<LoadedModel> load_gguf(const std::shared_ptr<const GgufSource>& source) {
  const GgufHeader& header = source->header();
  const std::string& label = source->label();
  BOLIDE_TRY(const auto name, header.string("general.architecture", label));
  if (!name) return error(Code::kInvalid, fmt::format("{}: general.architecture is missing", label));
  BOLIDE_TRY(const Family* family, family_of(*name, label));

  LoadedModel model;
  model.path = label;
  model.format = "gguf";
  BOLIDE_TRY(const auto title, header.string("general.name", label));
  model.name = title.value_or(model.path.stem().string());
  BOLIDE_TRY(auto parsed, config_fields(*source, *family));
  // Strings of the file may hold broken UTF-8.
  const std::string text = parsed.config.dump(-1, ' ', false, Json::error_handler_t::replace);
  BOLIDE_TRY(model.config, ModelConfig::parse(text, label));
  BOLIDE_TRY(parsed.dims.family, find_family(model.config));  // which may be mixtral
  BOLIDE_TRY(model.weights, rename_gguf(source, parsed.dims));
  BOLIDE_TRY(check_config_against_weights(model.config, *model.weights));
  BOLIDE_TRY(auto tokenizer, read_gguf_tokenizer(header, label));
  const auto vocabulary = source->find("token_embd.weight")->shape[0];
  if (static_cast<int64_t>(tokenizer.tokens.size()) > vocabulary)
    return error(Code::kInvalid, fmt::format("{}: tokenizer.ggml.tokens: has {} tokens, the embedding only {} rows",
                                             label, tokenizer.tokens.size(), vocabulary));
  model.generation = generation_of(tokenizer);
  BOLIDE_TRY(read_sampling(header, label, model.generation));
  model.tokenizer.gguf = std::move(tokenizer);
  BOLIDE_TRY(const auto chat_template, header.string("tokenizer.chat_template", label));
  model.chat_template = chat_template.value_or("");
  model.chat_template_file = label;
  return model;
}

}  // namespace bolide
