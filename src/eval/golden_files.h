// golden.json and golden.safetensors of one folder: what a checkpoint gave elsewhere, and how far to be from it.
// tools/golden/README.md describes both files; tools/golden/make_golden.py writes them.
//
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/weight_source.h"

namespace bolide {

struct GoldenPrompt {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;
  std::vector<double> greedy_margins;  // largest minus second largest logit of each step
};

struct GoldenText {
  std::string text;
  GoldenPrompt prompt;      // its ids with special tokens, and what follows
  std::string greedy_text;  // without special tokens
};

struct Golden {
  std::string name;
  std::vector<GoldenPrompt> prompts;
  std::string full_logits;  // prompt with the logits of all positions; may be empty
  std::string trace;        // prompt with hidden states; may be empty
  std::vector<int32_t> nll_ids;
  double nll_mean = 0;
  std::optional<GoldenText> text;
  // Only of checkpoints whose Linears round their inputs: the same without the rounding. Ids are those of `prompts`.
  std::vector<GoldenPrompt> weight_only;
  double weight_only_nll_mean = 0;
  // "float32": {"rel_l2": 5e-5, ...}.
  std::map<std::string, std::map<std::string, double>> tolerance;
  std::shared_ptr<const WeightSource> tensors;

  bool rounds_inputs() const { return !weight_only.empty(); }
};

// Errors name the file and the field. Every prompt has its last logits, of one size, and ids within them.
Result<Golden> read_golden(const std::filesystem::path& folder);

}  // namespace bolide
