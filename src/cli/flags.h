// Flags: option tables (base/options.h) on the command line, and the configuration that commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "app/model.h"
#include "base/options.h"

namespace bolide::cli {

// One flag a row; --help shows sentence, range and default. `groups` them under a heading.
void add_options(CLI::App& app, std::span<const BoundOption> options, const std::string& group = "Options");

// True if the flag of this row was on the command line.
bool given(const CLI::App& app, std::string_view option_name);

// How a model is opened: every command that runs one has these flags.
struct ModelConfigFlags {
  std::string device = "auto";
  int32_t threads = 0;
  std::string isa;
  std::string dtype = "auto";
  std::string kv_type = "bf16";
  int32_t context = 0;
  int32_t block_tokens = 16;
  std::string config;
  std::string skip_passes;
  bool verify = false;
};

inline constexpr Option<ModelConfigFlags> kModelOptions[] = {
    {"device", &ModelConfigFlags::device, {}, "where to run: auto, cpu, cuda or cuda:N"},
    {"threads", &ModelConfigFlags::threads, {.min = 0, .max = 1024}, "threads; 0: the cores this cgroup may use"},
    {"isa",
     &ModelConfigFlags::isa,
     {.choices = "|scalar|avx2|avx512|vnni|amx"},
     "use no instruction set above this one; empty: the best there is"},
    {"dtype",
     &ModelConfigFlags::dtype,
     {.choices = "auto|f32|bf16|int8"},
     "arithmetic of matrix products; auto: what the weights are made for"},
    {"kv_type", &ModelConfigFlags::kv_type, {.choices = "bf16|f32"}, "element type of the KV cache"},
    {"context",
     &ModelConfigFlags::context,
     {.unit = "tokens", .min = 0, .max = 1 << 24},
     "tokens that prompt and answer may have; 0: the model's own, at most 4096"},
    {"block_tokens",
     &ModelConfigFlags::block_tokens,
     {.unit = "tokens", .min = 1, .max = 1 << 24},
     "tokens in a block of the KV cache"},
    {"config", &ModelConfigFlags::config, {}, "read this file in place of the folder's config.json"},
    {"skip_passes",
     &ModelConfigFlags::skip_passes,
     {},
     "graph passes to leave out, separated by commas (bolide inspect --graph lists them)"},
    {"verify", &ModelConfigFlags::verify, {}, "check the checksums of an engine's weights before running it"},
};

// Errors name the flag.
Result<ModelOptions> to_model_options(const ModelConfigFlags& flags);

// The common end of every command: prints the error, two lines at most, and gives the exit code (1 to 125).
int report(const Error& failure);

// Opens a model with a progress line on a terminal.
Result<Model> open_with_progress(const std::string& path, const ModelOptions& options);

// True if this stream is a terminal: colours and progress go there only.
bool is_terminal(int descriptor);

}  // namespace bolide::cli
