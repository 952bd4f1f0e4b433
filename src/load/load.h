// Loading a model: a path in; configuration, weights and tokenizer assets out, the same for every format.
//
// MODEL is a GGUF file (or any shard of a split one), a folder with config.json and safetensors, or "synth:NAME", whose
// weights are generated. Weights have Hugging Face names and layout whatever the file calls them.
// Thread rules: plain values; the weight source may be read from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "formats/gguf_tokenizer.h"
#include "formats/model_config.h"
#include "formats/weight_source.h"

namespace bolide {

// What is there of: Hugging Face's files, SentencePiece's file, a GGUF file's metadata. Empty: not there.
struct TokenizerAssets {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string tokenizer_model;  // bytes of a SentencePiece model
  std::optional<GgufTokenizer> gguf;
};

class GgufSource;

struct LoadOptions {
  std::filesystem::path config;  // read in place of the folder's config.json; empty: that one
  // A folder whose family is not supported is loaded too, as it lies: to look at it.
  bool any_family = false;
  int threads = 0;  // that generate weights; 0: the cores that this process may use
};

struct LoadedModel {
  std::filesystem::path path;
  std::string format;  // "gguf", "safetensors" or "synth"
  std::string name;    // for people: general.name, or the folder's name
  ModelConfig config;  // with the standard names of fields, whatever the family calls them
  GenerationConfig generation;
  std::shared_ptr<const WeightSource> weights;
  TokenizerAssets tokenizer;
  std::string chat_template;       // Jinja, or empty
  std::string chat_template_file;  // that it is from, for errors
};

// Errors say which file, what and what to do. The configuration's sizes have been checked against the tensors.
Result<LoadedModel> load_model(const std::filesystem::path& path, const LoadOptions& options = {});

// The formats; load_model chooses.
Result<LoadedModel> load_gguf(const std::filesystem::path& file);
// `path` of the result is the source's label.
Result<LoadedModel> load_gguf(const std::shared_ptr<const GgufSource>& source);
Result<LoadedModel> load_hf_directory(const std::filesystem::path& folder, const LoadOptions& options);
// "synth:NAME[:TYPE][:layers=N][:seed=N]", see synth/architectures.h.
Result<LoadedModel> load_synth(const std::string& name, const LoadOptions& options);

// Layers, heads, vocabulary and dims of `config`, which has the standard names, against the tensors that are there.
Result<> check_config_against_weights(const ModelConfig& config, const WeightSource& weights);

}  // namespace bolide
