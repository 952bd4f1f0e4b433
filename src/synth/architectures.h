// Published decoders by their shapes: what `synth` can make.
//
// Thread rules: constants and plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace bolide {

// The types that weights are made in. The embedding, the norms and the head of kFp8 and kGptqInt4 stay bf16; block
// types keep norms in f32, and the embedding and the head in a finer block type, as GGUF files do.
enum class SynthType : uint8_t { kBF16, kF32, kF16, kFp8, kGptqInt4, kQ4_0, kQ8_0, kQ4_K, kQ6_K };

std::string_view to_string(SynthType type);  // "bf16", "fp8", "gptq-int4", "q4_k", ...
std::span<const SynthType> synth_types();
// kInvalid names the known types.
Result<SynthType> synth_type_from_string(std::string_view name);
// True for GGUF's block types, which are generated for running only: a Hugging Face folder has no such types.
bool is_block_type(SynthType type);

struct Architecture {
  std::string_view name;      // "llama-3-8b"
  std::string_view sentence;  // for people
  std::string_view hf_class, model_type;
  int64_t hidden, layers, heads, kv_heads, ffn, vocab, context;
  double rope_theta, norm_eps;
  bool tied;
  std::string_view more = "{}";  // further fields of config.json
};

std::span<const Architecture> architectures();
// kNotFound names the nearest and all known ones.
Result<const Architecture*> find_architecture(std::string_view name);

// What to make.
struct SynthRequest {
  const Architecture* architecture = nullptr;
  SynthType type = SynthType::kBF16;
  int64_t layers = 0;  // 0: the architecture's own; never more
  uint64_t seed = 0;

  int64_t layer_count() const { return layers > 0 ? layers : architecture->layers; }
};

// "synth:NAME[:TYPE][:layers=N][:seed=N]".
bool is_synth_name(std::string_view name);
Result<SynthRequest> parse_synth_name(std::string_view name);
std::string to_string(const SynthRequest& request);
// kInvalid if there are to be more layers than the architecture has.
Result<> check(const SynthRequest& request);

// config.json, as transformers writes it. It names no tokens of beginning or end, so that nothing ends an answer early.
std::string synth_config(const SynthRequest& request);

}  // namespace bolide
