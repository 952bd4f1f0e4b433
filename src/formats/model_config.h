// ModelConfig: a typed, normalised view of a Hugging Face config.json in either style (with rope_theta, rope_scaling,
// torch_dtype; or with rope_parameters, dtype, layer_types). GGUF metadata is turned into the same fields by load/.
//
// Every getter's error names the file, the field and what was expected. A field that is null counts as absent.
// Thread rules: immutable, cheap to copy, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace bolide {

enum class RopeType : uint8_t { kDefault, kLinear, kDynamic, kYarn, kLlama3, kLongRope };
std::string_view to_string(RopeType type);

// Rotary embedding parameters, as transformers understands them. What a type does not use keeps its default.
struct RopeConfig {
  double theta = 10000.0;
  RopeType type = RopeType::kDefault;
  double factor = 1.0;
  int64_t original_context = 0;            // positions the model was trained with before scaling
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  std::optional<double> attention_factor;  // yarn, longrope; absent: computed from factor
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  std::optional<double> mscale;            // yarn
  std::optional<double> mscale_all_dim;    // yarn
  bool truncate = true;                    // yarn
  std::vector<double> short_factor;        // longrope: [rotated dims / 2]
  std::vector<double> long_factor;
  double partial_rotary_factor = 1.0;
};

// What the checkpoint recommends for sampling; absent: it says nothing.
struct GenerationConfig {
  std::vector<int64_t> eos_ids;
  std::optional<int64_t> bos_id, pad_id;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, tokens_max;
  std::optional<bool> do_sample;
};

enum class QuantMethod : uint8_t { kGptq, kAwq, kCompressedFloat8, kFp8 };
std::string_view to_string(QuantMethod method);

struct QuantizationConfig {
  QuantMethod method = QuantMethod::kGptq;
  int64_t bits = 0;
  int64_t group_size = 0;           // gptq, awq: elements of K that share a scale; -1: all of them
  bool desc_act = false;            // gptq: rows of K belong to groups by g_idx
  bool symmetric = true;            // gptq
  bool zero_offset = true;          // gptq: the stored zero point is one less than the true one (all but "gptq_v2")
  bool zero_point = true;           // awq
  std::string version;              // awq: "gemm"
  bool dynamic_inputs = false;      // fp8: inputs of Linears are rounded token by token
  std::vector<int64_t> block_size;  // fp8: [N, K] of a scale's block, or empty
  std::vector<std::string> ignore;  // modules left alone; "re:" in front of a regular expression

  friend bool operator==(const QuantizationConfig&, const QuantizationConfig&) = default;
};

// A field that some files call otherwise: GPT-2's `n_embd` is `hidden_size`.
struct FieldAlias {
  std::string_view standard, own;
};

// What numbers of configurations may be. Beyond, arithmetic in float32 gives no numbers, or no model was ever made so.
struct NumberRange {
  double least, most;
};
inline constexpr NumberRange kNormEpsilonRange{1e-12, 0.1};
inline constexpr NumberRange kRopeThetaRange{1.01, 1e15};
inline constexpr NumberRange kPartialRotaryRange{1e-4, 1};
inline constexpr NumberRange kRopeFactorRange{1e-3, 1e6};  // of a whole embedding, or of one frequency
inline constexpr NumberRange kAttentionFactorRange{1e-3, 1e4};
inline constexpr NumberRange kMscaleRange{0, 1e3};
// Those of generation_config.json have the ranges of the flags.
inline constexpr NumberRange kTemperatureRange{0, 100};
inline constexpr NumberRange kShareRange{0, 1};
inline constexpr NumberRange kRepetitionPenaltyRange{0.01, 100};
inline constexpr NumberRange kPenaltyRange{-100, 100};

// "is 5, expected 0 to 1"; empty if the value is in the range.
std::string range_problem(double value, NumberRange range);

class ModelConfig {
 public:
  // Refuses text over kConfigBytesMax and anything but a JSON object. `source` names the file in errors.
  static Result<ModelConfig> parse(std::string_view text, std::string source);
  static constexpr uint64_t kConfigBytesMax = 1u << 20;

  // The same configuration with what stands under an own name under the standard one as well; errors name both.
  ModelConfig with_aliases(std::span<const FieldAlias> aliases) const;

  const std::string& source() const;
  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;
  std::string to_text() const;  // JSON, indented

  // Required fields.
  Result<int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> string(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;  // one integer counts as a list of one
  Result<std::vector<double>> numbers(std::string_view key) const;
  Result<std::vector<std::string>> strings(std::string_view key) const;
  Result<ModelConfig> object(std::string_view key) const;  // source() of the result has the key behind it

  // An integer that must be at least `least` and at most `most`: dims and counts.
  Result<int64_t> integer_in(std::string_view key, int64_t least, int64_t most) const;

  // Numbers with a range; an absent one is `other`, or std::nullopt.
  Result<double> number_in(std::string_view key, double other, NumberRange range) const;
  Result<std::optional<double>> optional_number_in(std::string_view key, NumberRange range) const;
  Result<std::optional<int64_t>> optional_integer_in(std::string_view key, int64_t least, int64_t most) const;

  // std::nullopt if the field is absent.
  Result<std::optional<int64_t>> optional_integer(std::string_view key) const;
  Result<std::optional<double>> optional_number(std::string_view key) const;
  Result<std::optional<bool>> optional_boolean(std::string_view key) const;
  Result<std::optional<std::string>> optional_string(std::string_view key) const;
  Result<std::optional<ModelConfig>> optional_object(std::string_view key) const;

  // `other` if the field is absent.
  Result<int64_t> integer_or(std::string_view key, int64_t other) const;
  Result<double> number_or(std::string_view key, double other) const;
  Result<bool> boolean_or(std::string_view key, bool other) const;
  Result<std::string> string_or(std::string_view key, std::string other) const;

  // Normalised views of both styles.
  Result<std::string> architecture() const;              // the first of `architectures`
  Result<std::optional<std::string>> dtype() const;      // `dtype` or `torch_dtype`, without "torch."
  Result<std::vector<std::string>> layer_types() const;  // empty if the file has none
  // `layer_type`: "full_attention" and so on, where rope_parameters are given per type.
  Result<RopeConfig> rope(std::string_view layer_type = {}) const;
  // std::nullopt: not quantised. kUnsupported names the method and the nearest supported one.
  Result<std::optional<QuantizationConfig>> quantization() const;

  // An error about one field of this file, for checks made elsewhere: "config.json: hidden_size: <what>".
  Error field_error(std::string_view key, std::string_view what, Code code = Code::kInvalid) const;

 private:
  struct Document;
  std::shared_ptr<const Document> document_;
};

// generation_config.json, with what it lacks taken from config.json. `generation` may be nullptr.
Result<GenerationConfig> read_generation_config(const ModelConfig* generation, const ModelConfig& config);

}  // namespace bolide
