// What commands that answer many requests at once share: which models, how their engines run, the chat template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/model_flags.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/served_models.h"

namespace bolide::cli {

struct EngineFlags {
  std::vector<std::string> models;  // [NAME=]MODEL
  ModelConfigFlags model;
  int32_t max_sequences = 0;
  int64_t cache_tokens = 0;
  int32_t tokens_per_step = 0;
  bool no_prefix_cache = false;
  double drain_seconds = 30;
  std::string template_file;
};

// `flags` must live as long as the parser.
// `kinds`: what else than language models there may be, as in "an ONNX file, ".
Argument add_model_arguments(const Command& command, EngineFlags& flags, std::string_view kinds = "");
void add_engine_flags(const Command& command, EngineFlags& flags);
// The same as rows that a configuration file can have.
std::vector<OptionGroup> engine_option_groups(EngineFlags& flags);

// `secret`: of EngineOptions. Errors name the flag.
Result<ServedModelOptions> to_served_options(const EngineFlags& flags, uint64_t secret);

}  // namespace bolide::cli
