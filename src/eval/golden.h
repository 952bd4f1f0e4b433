// Checks a model against the golden files that lie in a folder (golden_files.h): logits, hidden states, log-likelihood,
// greedy tokens, text to text; all positions at once, in chunks, and several prompts in one step.
//
// Thread rules: any thread; each call opens its own models.
#pragma once

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "app/model.h"

namespace bolide {

// One measured figure beside the most it may be.
struct GoldenCheck {
  std::string check;  // "rel_l2", "greedy.p33", ...
  double got = std::numeric_limits<double>::infinity();
  double limit = 0;
  std::string note = {};  // what a number does not tell; may be empty
  bool pass() const { return got <= limit; }
};

struct GoldenResult {
  std::string name;
  std::vector<GoldenCheck> checks;
  bool pass() const;
  // The check nearest to its limit, or furthest past it. nullptr if there is none.
  const GoldenCheck* worst() const;
};

struct GoldenOptions {
  std::filesystem::path model;  // a model or engine to check in place of the folder's own; empty: that one
  // dtype decides which line of the tolerances holds; kAuto counts as kF32. Sizes of context and batch are set here.
  ModelOptions open;
  // Checks, too, that no step of a plan for one, 8 or 16 sequences or for a prompt of 64 or 512 tokens runs a kernel
  // that is a last resort (Kernel::reference). Not so for models too small for any other.
  bool no_reference_kernels = false;
};

// Errors: golden or model cannot be read, or the golden has no tolerance for the dtype.
Result<GoldenResult> check_golden(const std::filesystem::path& folder, const GoldenOptions& options);

}  // namespace bolide
