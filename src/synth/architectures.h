// Published decoders by their shapes: what `synth` can make.
//
// Thread rules: constants and plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "synth/synth_type.h"

namespace bolide {

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
  const SynthType* type = synth_types().data();
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
