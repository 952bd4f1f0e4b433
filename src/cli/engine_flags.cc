#include "cli/engine_flags.h"

#include <fmt/format.h>

namespace bolide::cli {
namespace {

// What the cache has room for, unless a flag says otherwise. On GPUs the rest is left to activations, libraries and
// other programs.
constexpr int32_t kCacheContexts = 8;
constexpr double kCacheShareGpu = 0.85;

constexpr const char* kTemplateHelp = "Jinja file to use as the chat template";

constexpr Option<EngineFlags> kEngineOptions[] = {
    {"max_sequences",
     &EngineFlags::max_sequences,
     {.min = 0, .max = 4096},
     "answers that are made at once; more wait; 0: 32, on GPUs 256"},
    {"cache_tokens",
     &EngineFlags::cache_tokens,
     {.unit = "tokens", .min = 0},
     "that all prompts and answers at once may have; 0: eight times the context, on GPUs what 85 % of the memory "
     "beside the weights holds, at most a context for each of --max-sequences"},
    {"tokens_per_step",
     &EngineFlags::tokens_per_step,
     {.unit = "tokens", .min = 0, .max = 1 << 20},
     "of prompts and answers in one step at most; 0: 512, on GPUs 8192"},
    {"no_prefix_cache", &EngineFlags::no_prefix_cache, {}, "compute every prompt from its beginning"},
    {"drain_seconds",
     &EngineFlags::drain_seconds,
     {.unit = "s", .min = 0, .max = 1e6},
     "that running requests get to end after SIGTERM"},
};

}  // namespace

Argument add_model_arguments(const Command& command, EngineFlags& flags, std::string_view kinds) {
  return command.add_option(
      "model", flags.models,
      fmt::format("[NAME=]MODEL: a GGUF file, a Hugging Face folder, {}an engine or synth:NAME, and the name that "
                  "requests call it by (without: that of the file)",
                  kinds));
}

void add_engine_flags(const Command& command, EngineFlags& flags) {
  command.add_options(bind_options(flags, kEngineOptions), "Engine");
  command.add_option("--template,--template-file", flags.template_file, kTemplateHelp).take_last();
  const auto model = bind_options(flags.model, kModelOptions);
  command.add_options(model, "Model");
}

std::vector<OptionGroup> engine_option_groups(EngineFlags& flags) {
  std::vector<BoundOption> engine = bind_options(flags, kEngineOptions);
  engine.push_back({"template_file", {}, kTemplateHelp, &flags.template_file});
  return {{"Engine", std::move(engine)}, {"Model", bind_options(flags.model, kModelOptions)}};
}

Result<ServedModelOptions> to_served_options(const EngineFlags& flags, uint64_t secret) {
  ServedModelOptions options;
  BOLIDE_TRY(options.model, to_model_options(flags.model));
  const bool gpu = options.model.device != DeviceKind::kCpu;
  options.model.sequences = flags.max_sequences > 0 ? flags.max_sequences : gpu ? 256 : 32;
  // Prompts whose log-probabilities are wanted are computed by so many tokens a step, if little else runs.
  constexpr int32_t kRowsMin = 64;
  options.model.rows_max = std::max(options.model.sequences, kRowsMin);
  options.model.tokens_per_step = flags.tokens_per_step;
  options.model.cache_tokens = flags.cache_tokens;
  options.model.cache_contexts = kCacheContexts;
  options.model.cache_share = kCacheShareGpu;
  options.engine.prefix_cache = !flags.no_prefix_cache;
  options.engine.secret = secret;
  options.template_file = flags.template_file;
  options.drain_us = static_cast<int64_t>(flags.drain_seconds * 1e6);
  return options;
}

}  // namespace bolide::cli
