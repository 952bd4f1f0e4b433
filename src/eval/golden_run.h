// GoldenModel: a model opened for checking, and the ways of getting logits out of it.
//
// Thread rules: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/model.h"
#include "eval/golden_files.h"

namespace bolide {

// Prompt name to logits: [rows, V], where rows are all positions or the last one alone.
using LogitRuns = std::map<std::string, std::vector<float>>;
// "embed", "layer0", ..., "final_norm" to [tokens, E]; empty where no step of the plan gives it.
using HiddenStates = std::map<std::string, std::vector<float>>;

class GoldenModel {
 public:
  // Context, rows and sequences are made large enough for every prompt and its continuation.
  static Result<GoldenModel> open(const std::filesystem::path& path, ModelOptions options, const Golden& golden);

  // Each prompt by itself, in chunks of these sizes over and over (empty: whole), with the logits of all positions.
  // `states`: hidden states of the golden's trace prompt.
  Result<LogitRuns> one_by_one(const std::vector<GoldenPrompt>& prompts, const std::vector<int32_t>& chunks,
                               HiddenStates* states = nullptr);
  // All prompts in one step, each `copies` times; a run for each copy.
  Result<std::vector<LogitRuns>> all_at_once(const std::vector<GoldenPrompt>& prompts, int copies = 1);
  static constexpr int kCopies = 4;  // at most
  // The prompt in kSequences sequences, of which the i-th computes its first i + 1 tokens in the first step; then one
  // token each a step, until the last is done: batches of kSequences, and of every size below. A run for each.
  static constexpr int32_t kSequences = 16;
  Result<std::vector<LogitRuns>> decode_together(const GoldenPrompt& prompt);
  // [ids, V].
  Result<std::vector<float>> all_logits(const std::vector<int32_t>& ids);
  // As many greedy tokens as the golden has; no id ends the text.
  Result<GenerateResult> generate(const GoldenPrompt& prompt);

  bool has_experts() const;
  // "T=8: layers.0.attn.q linear_ref" for each step that runs a last resort when these sequences have so many tokens in
  // all. Errors: sizes beyond kTokens or kSequences.
  static constexpr int32_t kTokens = 512;
  Result<std::vector<std::string>> reference_steps(int32_t tokens, int32_t sequences);

  size_t vocab() const { return static_cast<size_t>(model_->runner->vocab()); }
  const Tokenizer& tokenizer() const { return model_->tokenizer; }

 private:
  GoldenModel() = default;
  Result<> append_logits(size_t rows, std::vector<float>* out) const;
  // One step over `work`; rows of each item are appended to logits[i].
  Result<> step_rows(std::span<const Work> work, std::span<std::vector<float>> logits);
  Result<std::vector<float>> run(const std::vector<int32_t>& ids, const std::vector<int32_t>& chunks,
                                 HiddenStates* states);

  std::unique_ptr<Model> model_;
  std::unique_ptr<Generator> generator_;  // one for all: it keeps its blocks of the cache
  std::string trace_;
  int32_t layers_ = 0;
};

}  // namespace bolide
