// DecoderSpec: a decoder-only transformer as data. A family (families.h) reads its config.json into a spec and says
// what its tensors are called; build_decoder turns both into a Graph.
//
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "formats/weight_source.h"
#include "ir/graph.h"

namespace bolide {

enum class NormKind : uint8_t { kRms, kLayer };

struct DecoderSpec {
  // Shapes.
  int64_t layers = 0;       // L
  int64_t embed_dim = 0;    // E
  int64_t ffn_dim = 0;      // F; of one expert for mixtures
  int64_t heads = 0;        // H
  int64_t kv_heads = 0;     // G
  int64_t head_dim = 0;     // D
  int64_t vocab = 0;        // V
  int64_t context_max = 0;  // positions the model was made for

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;

  bool learned_positions = false;  // an embedding of positions is added to the tokens'; then no more than context_max
  int64_t positions_offset = 0;    // the row of its table that position 0 has
  bool has_rope = true;
  RopeSpec rope;

  bool qkv_bias = false;
  bool out_bias = false;
  bool qk_norm = false;         // RmsNorm of each head of q and k before rotation, weights [D]
  float attention_scale = 0;    // 0: 1 / sqrt(D)
  std::vector<int64_t> window;  // one a layer: tokens a token sees, itself included; 0: all. Empty: all layers 0

  bool gated = true;  // act(gate) * up, else act(up)
  ActKind act = ActKind::kSilu;
  bool ffn_bias = false;
  int64_t experts = 0;  // 0: dense
  int64_t experts_per_token = 0;
  bool renormalise_experts = true;

  bool tied_head = false;  // the logits' weight is the embedding
  bool head_bias = false;  // of Slot::kHead, whether the head is tied or not
};

// What a tensor of the checkpoint is for. The weight rules of a family give each slot a name.
enum class Slot : uint8_t {
  kEmbed,
  kPositions,
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQNorm,
  kKNorm,
  kOut,
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kRouter,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kFinalNorm,
  kHead,
};

std::string_view to_string(Slot slot);  // "Slot::kEmbed"

// Which rows of the named tensor a slot takes: fused checkpoints keep q, k and v (or gate and up) in one.
enum class Rows : uint8_t { kAll, kQ, kK, kV, kGate, kUp };

// How the file has the weight: [out, in] as torch's Linear, or [in, out] as GPT-2's Conv1D. Of biases nothing differs.
enum class Layout : uint8_t { kOutIn, kInOut };

// `module` with {l} the layer and {e} the expert; ".weight" and ".bias" follow it in the file.
struct WeightRule {
  Slot slot;
  std::string_view module;
  Rows rows = Rows::kAll;
  Layout layout = Layout::kOutIn;
};

// What GGUF files of a family say of themselves. Names of tensors need no table: GGUF has one name a slot.
struct GgufForm {
  std::string_view architecture;  // general.architecture; empty: there are none
  std::string_view act = "silu";  // `hidden_act`, which GGUF leaves out
};

struct Family {
  std::string_view name;                            // `model_type` of config.json
  std::span<const std::string_view> architectures;  // of config.json: "LlamaForCausalLM"
  Result<DecoderSpec> (*parse)(const ModelConfig&) = nullptr;
  std::span<const WeightRule> weights;
  std::span<const FieldAlias> fields = {};           // its own names for config.json's standard fields
  std::string_view prefix = {};                      // may stand before the modules' names, or not: "transformer."
  std::span<const std::string_view> leftovers = {};  // endings of tensors that files have and the model does not need
  GgufForm gguf = {};
};

// The rule's module for a layer and an expert. nullptr: the family has no rule for this slot.
const WeightRule* find_rule(const Family& family, Slot slot);
std::string module_name(const WeightRule& rule, int64_t layer, int64_t expert = 0);

// How the products of a model are computed. kAuto: what the checkpoint's weights are made for.
enum class ComputeMode : uint8_t { kAuto, kF32, kBF16, kInt8 };

// The arithmetic of a product with this weight.
Compute choose_compute(ComputeMode mode, const ValueType& weight);

// The decoder's graph. Inputs: ids [T], positions [T], rows [R] (i32). Outputs: logits [R, V]; next [R] and logprob
// [R]. Every tensor's shape is checked against the spec; the error names the tensor, its shape and the config's.
Result<Graph> build_decoder(const DecoderSpec& spec, const Family& family, const WeightSource& weights,
                            ComputeMode mode);

// Sizes alone: num_hidden_layers, hidden_size, num_attention_heads, vocab_size; intermediate_size (absent:
// 4 * hidden_size), num_key_value_heads (absent: all), head_dim (absent: hidden_size / heads), max_position_embeddings.
Result<DecoderSpec> parse_sizes(const ModelConfig& config);
// `hidden_act`, or what the family's class takes when config.json is silent.
Result<ActKind> read_act(const ModelConfig& config, std::string_view otherwise);
// parse_sizes and what else most families share: rms_norm_eps, hidden_act, tie_word_embeddings, the rotary embedding;
// intermediate_size must be there.
Result<DecoderSpec> parse_llama_like(const ModelConfig& config);
// Tokens that a layer with a sliding window sees; 0: all.
Result<int64_t> read_sliding_window(const ModelConfig& config);
// Rotary tables of a RopeConfig for head dim D (all of transformers' rope types).
Result<RopeSpec> make_rope(const RopeConfig& config, int64_t head_dim, int64_t context_max);

}  // namespace bolide
