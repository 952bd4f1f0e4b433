// The types that generated weights have: one row of a table each.
//
// Thread rules: constants.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/quant.h"

namespace bolide {

struct SynthType {
  enum class Method : uint8_t {
    kFloats,  // every tensor of type `floats`
    kFloat8,  // Linears of layers: float8 codes and a scale a row, as compressed-tensors stores them
    kInt8,    // Linears of layers and lm_head: int8 codes and a scale a row
    kW4,      // Linears of layers: w4_* blocks; lm_head as of kInt8
    kGptq,    // Linears of layers: 4 bits in groups of 128, as GPTQ stores them
    kBlocks,  // matrices: blocks of GGUF's types
  };

  std::string_view name;  // "bf16"
  Method method;
  DType floats;                          // of what is not quantised
  std::string_view in_folders;           // the type that a folder has in its place; empty: made for running only
  const QuantScheme* linears = nullptr;  // of kBlocks and kW4
  const QuantScheme* head = nullptr;     // of kBlocks: of lm_head, or of the embedding that stands for it
  std::string_view quantization_config;  // a field of config.json; empty: none
};

// The first is what is made unless another is asked for.
std::span<const SynthType> synth_types();
// kInvalid names the known types.
Result<const SynthType*> find_synth_type(std::string_view name);
std::string known_synth_types();  // "bf16, f32, ..."
// `wanted`, or what stands for it where rows are no whole number of its blocks: smaller groups of w4_*, or what
// converters to GGUF take.
const QuantScheme* scheme_for_rows(const QuantScheme* wanted, int64_t k);

}  // namespace bolide
