#include "synth/architectures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "base/options.h"

namespace bolide {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "synth:";

constexpr std::string_view kLlama3Rope =
    R"({"head_dim": 64, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})";
constexpr std::string_view kExperts =
    R"({"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null, "router_aux_loss_coef": 0.02})";
constexpr std::string_view kQwen2 = R"({"use_sliding_window": false, "sliding_window": null})";
constexpr std::string_view kPhi3 =
    R"({"sliding_window": 2047, "original_max_position_embeddings": 4096, "rope_scaling": null})";

constexpr Architecture kArchitectures[] = {
    {"llama-3-8b", "Meta-Llama-3-8B", "LlamaForCausalLM", "llama", 4096, 32, 32, 8, 14336, 128256, 8192, 5e5, 1e-5,
     false},
    {"llama-3-70b", "Meta-Llama-3-70B", "LlamaForCausalLM", "llama", 8192, 80, 64, 8, 28672, 128256, 8192, 5e5, 1e-5,
     false},
    {"qwen2-1.5b", "Qwen2-1.5B", "Qwen2ForCausalLM", "qwen2", 1536, 28, 12, 2, 8960, 151936, 131072, 1e6, 1e-6, true,
     kQwen2},
    {"qwen2-7b", "Qwen2-7B", "Qwen2ForCausalLM", "qwen2", 3584, 28, 28, 4, 18944, 152064, 131072, 1e6, 1e-6, false,
     kQwen2},
    {"phi-3-mini", "Phi-3-mini-4k", "Phi3ForCausalLM", "phi3", 3072, 32, 32, 32, 8192, 32064, 4096, 1e4, 1e-5, false,
     kPhi3},
    {"mixtral-8x7b", "Mixtral-8x7B-v0.1, 2 of 8 experts a token", "MixtralForCausalLM", "mixtral", 4096, 32, 32, 8,
     14336, 32000, 32768, 1e6, 1e-5, false, kExperts},
    {"smollm2-135m", "SmolLM2-135M", "LlamaForCausalLM", "llama", 576, 30, 9, 3, 1536, 49152, 8192, 1e5, 1e-5, true},
    {"smollm2-360m", "SmolLM2-360M", "LlamaForCausalLM", "llama", 960, 32, 15, 5, 2560, 49152, 8192, 1e5, 1e-5, true},
    {"smollm2-1.7b", "SmolLM2-1.7B", "LlamaForCausalLM", "llama", 2048, 24, 32, 32, 8192, 49152, 8192, 1.3e5, 1e-5,
     true},
    {"long-1b", "128k tokens of context, the shape of Llama-3.2-1B", "LlamaForCausalLM", "llama", 2048, 16, 32, 8, 8192,
     128256, 131072, 5e5, 1e-5, true, kLlama3Rope},
};

// The number behind "key=", if the word begins so; kInvalid if what follows is none.
template <class T>
Result<std::optional<T>> number_behind(std::string_view word, std::string_view key, T least) {
  if (!word.starts_with(key)) return std::optional<T>();
  const std::string_view digits = word.substr(key.size());
  T value{};
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || value < least)
    return error(Code::kInvalid, fmt::format("{:.40}: expected a whole number of at least {}", word, least));
  return std::optional<T>(value);
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Result<const Architecture*> find_architecture(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
    names.push_back(architecture.name);
  }
  const std::string_view near = nearest_name(name.substr(0, 80), names);
  return error(Code::kNotFound,
               fmt::format("{:.80}: no such architecture{}; known are {}", name,
                           near.empty() ? "" : fmt::format(", did you mean {}?", near), fmt::join(names, ", ")));
}

bool is_synth_name(std::string_view name) { return name.starts_with(kPrefix); }

Result<SynthRequest> parse_synth_name(std::string_view name) {
  std::string_view rest = name;
  rest.remove_prefix(std::min(kPrefix.size(), rest.size()));
  const auto next = [&] {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return word;
  };
  SynthRequest request;
  std::set<std::string_view> given;  // of what can be said once
  const auto first = [&](std::string_view what) -> Result<> {
    if (given.insert(what).second) return {};
    return error(Code::kInvalid, fmt::format("{:.160}: it says {} twice", name, what));
  };
  BOLIDE_TRY(request.architecture, find_architecture(next()).context("synth"));
  while (!rest.empty()) {
    const std::string_view word = next();
    BOLIDE_TRY(const auto layers, number_behind<int64_t>(word, "layers=", 1).context("synth"));
    BOLIDE_TRY(const auto seed, number_behind<uint64_t>(word, "seed=", 0).context("synth"));
    if (layers) {
      BOLIDE_TRY(first("layers"));
      request.layers = *layers;
    } else if (seed) {
      BOLIDE_TRY(first("seed"));
      request.seed = *seed;
    } else {
      const auto type = find_synth_type(word);
      if (!type)
        return error(Code::kInvalid,
                     fmt::format("{:.160}: \"{:.40}\" is no type of weights (known are {}) and neither layers=N nor "
                                 "seed=N",
                                 name, word, known_synth_types()));
      BOLIDE_TRY(first("the type of weights"));
      request.type = *type;
    }
  }
  BOLIDE_TRY(check(request).context("synth"));
  return request;
}

std::string to_string(const SynthRequest& request) {
  std::string text = fmt::format("{}{}:{}", kPrefix, request.architecture->name, request.type->name);
  if (request.layer_count() != request.architecture->layers) text += fmt::format(":layers={}", request.layers);
  if (request.seed != 0) text += fmt::format(":seed={}", request.seed);
  return text;
}

Result<> check(const SynthRequest& request) {
  if (request.layers >= 0 && request.layers <= request.architecture->layers) return {};
  return error(Code::kInvalid, fmt::format("{} layers are asked for; {} has {}, and fewer can be made, not more",
                                           request.layers, request.architecture->name, request.architecture->layers));
}

std::string synth_config(const SynthRequest& request) {
  const Architecture& a = *request.architecture;
  // One field after another: nested braces of this type take compilers minutes.
  Json config;
  config["architectures"] = std::vector<std::string>{std::string(a.hf_class)};
  config["model_type"] = a.model_type;
  config["hidden_act"] = "silu";
  config["hidden_size"] = a.hidden;
  config["intermediate_size"] = a.ffn;
  config["num_hidden_layers"] = request.layer_count();
  config["num_attention_heads"] = a.heads;
  config["num_key_value_heads"] = a.kv_heads;
  config["vocab_size"] = a.vocab;
  config["max_position_embeddings"] = a.context;
  config["rope_theta"] = a.rope_theta;
  config["rms_norm_eps"] = a.norm_eps;
  config["tie_word_embeddings"] = a.tied;
  config["attention_dropout"] = 0.0;
  config["initializer_range"] = 0.02;
  const DType floats = request.type->floats;
  config["torch_dtype"] = floats == DType::kF16 ? "float16" : floats == DType::kF32 ? "float32" : "bfloat16";
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["use_cache"] = true;
  config.update(Json::parse(a.more));
  if (const std::string_view quantised = request.type->quantization_config; !quantised.empty())
    config["quantization_config"] = Json::parse(quantised);
  return config.dump(2) + "\n";
}

}  // namespace bolide
