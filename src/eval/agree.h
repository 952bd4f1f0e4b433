// How closely a model follows another on the same tokens: what quantisation or other arithmetic changes.
//
// Thread rules: one thread for both models.
#pragma once

#include <string_view>

#include "app/model.h"

namespace bolide {

struct AgreeOptions {
  int32_t window = 512;     // tokens; each window starts from an empty context
  int64_t windows_max = 0;  // 0: the whole text, its last window shorter
};

struct AgreeResult {
  double kl_mean = 0;  // KL(reference || model), nats, over all positions
  double kl_max = 0;
  double top1 = 0;     // share of positions where both prefer the same token
  int64_t tokens = 0;  // positions compared
};

void prepare_options(const AgreeOptions& options, ModelOptions* open);

// Tokens are the reference's of the text. Errors: vocabularies of different sizes, an empty text.
// `progress` gets after each step the tokens done, of both models, and all of them.
Result<AgreeResult> measure_agreement(Model& model, Model& reference, std::string_view text,
                                      const AgreeOptions& options,
                                      const FunctionRef<void(int64_t, int64_t)>* progress = nullptr);

// An English text for when none is named.
std::string_view sample_text();

}  // namespace bolide
