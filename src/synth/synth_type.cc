#include "synth/synth_type.h"

#include <fmt/format.h>

namespace bolide {
namespace {

constexpr std::string_view kFloat8Config =
    R"({"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true, "dynamic": false},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": true,
                                  "dynamic": true}}},
        "ignore": ["lm_head", "re:.*block_sparse_moe.gate"]})";
constexpr std::string_view kGptqConfig =
    R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": true, "lm_head": false,
        "checkpoint_format": "gptq", "damp_percent": 0.01})";

using Method = SynthType::Method;

constexpr SynthType kTypes[] = {
    {"bf16", Method::kFloats, DType::kBF16, "bf16"},
    {"f32", Method::kFloats, DType::kF32, "f32"},
    {"f16", Method::kFloats, DType::kF16, "f16"},
    {"fp8", Method::kFloat8, DType::kBF16, "fp8", nullptr, nullptr, kFloat8Config},
    {"int8", Method::kInt8, DType::kBF16, ""},
    {"w4", Method::kW4, DType::kBF16, "gptq", &kW4_G128},
    {"gptq", Method::kGptq, DType::kBF16, "gptq", nullptr, nullptr, kGptqConfig},
    // Norms and routers are float32, as in GGUF files.
    {"q8_0", Method::kBlocks, DType::kF32, "", &kQ8_0, &kQ8_0},
    {"q6_k", Method::kBlocks, DType::kF32, "", &kQ6_K, &kQ6_K},
    {"q5_k", Method::kBlocks, DType::kF32, "", &kQ5_K, &kQ6_K},
    {"q4_k", Method::kBlocks, DType::kF32, "", &kQ4_K, &kQ6_K},
    {"q4_1", Method::kBlocks, DType::kF32, "", &kQ4_1, &kQ6_K},
    {"q4_0", Method::kBlocks, DType::kF32, "", &kQ4_0, &kQ6_K},
};

}  // namespace

std::span<const SynthType> synth_types() { return kTypes; }

std::string known_synth_types() {
  std::string names;
  for (const SynthType& type : kTypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  return names;
}

Result<const SynthType*> find_synth_type(std::string_view name) {
  for (const SynthType& type : kTypes)
    if (type.name == name) return &type;
  return error(Code::kInvalid, fmt::format("{:.40}: no such type of weights; known are {}", name, known_synth_types()));
}

const QuantScheme* scheme_for_rows(const QuantScheme* wanted, int64_t k) {
  if (k % wanted->block_elements == 0) return wanted;
  if (wanted == &kW4_G128) return k % kW4_G64.block_elements == 0 ? &kW4_G64 : &kW4_G32;
  return wanted == &kQ4_K ? &kQ5_0 : wanted == &kQ5_K ? &kQ5_1 : &kQ8_0;
}

}  // namespace bolide
