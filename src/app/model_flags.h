// The options that models are opened with, in one table: flags of every command and words of the C++ API.
//
// Thread rules: plain values.
#pragma once

#include <string>

#include "app/model.h"
#include "base/options.h"

namespace bolide {

// How a model is opened: every command that runs one has these flags, the C++ API these words.
struct ModelConfigFlags {
  std::string device = "auto";
  std::string cuda_libs;
  int32_t threads = 0;
  std::string isa;
  std::string dtype = "auto";
  std::string kv_type = "bf16";
  bool deterministic = false;
  bool verify = false;
  int32_t context = 0;
  int32_t block_tokens = 0;
  std::string config;
  std::string skip_passes;
  std::string tuning_cache;
  int64_t memory_limit = 0;
};

inline constexpr Option<ModelConfigFlags> kModelOptions[] = {
    {"device", &ModelConfigFlags::device, {}, "where to run: auto, cpu, cuda or cuda:N"},
    {"cuda_libs",
     &ModelConfigFlags::cuda_libs,
     {},
     "folder in which cuBLASLt, cuDNN, NVML and NCCL are looked for first; empty: only where they usually are"},
    {"threads", &ModelConfigFlags::threads, {.min = 0, .max = 1024}, "threads; 0: the cores this cgroup may use"},
    {"isa",
     &ModelConfigFlags::isa,
     {.choices = "|scalar|avx2|avx512|vnni|amx"},
     "use no instruction set above this one; empty: the best there is"},
    {"dtype",
     &ModelConfigFlags::dtype,
     {.choices = "auto|f32|tf32|bf16|f16|int8"},
     "arithmetic of matrix products; auto: what the weights are made for; f16 and tf32 (f32 whose products are rounded "
     "to 10 bits behind the point): ONNX models on GPUs"},
    {"kv_type",
     &ModelConfigFlags::kv_type,
     {.choices = "bf16|f32|fp8"},
     "element type of the KV cache; fp8, e4m3, on GPUs"},
    {"verify", &ModelConfigFlags::verify, {}, "check the checksums of an engine's weights before running it"},
    {"deterministic",
     &ModelConfigFlags::deterministic,
     {},
     "the same bits however tokens are grouped into steps: no kernel whose arithmetic depends on their number"},
    {"context",
     &ModelConfigFlags::context,
     {.unit = "tokens", .min = 0, .max = 1 << 24},
     "tokens that prompt and answer may have; 0: the model's own, at most 4096"},
    {"block_tokens",
     &ModelConfigFlags::block_tokens,
     {.unit = "tokens", .min = 0, .max = 1 << 24},
     "tokens in a block of the KV cache; 0: 16, on GPUs 64"},
    {"model_config", &ModelConfigFlags::config, {}, "read this file in place of the folder's config.json"},
    {"memory_limit",
     &ModelConfigFlags::memory_limit,
     {.unit = "bytes", .min = 0},
     "ONNX: memory that values between nodes may take; 0: what the system and its control groups can give"},
    {"skip_passes",
     &ModelConfigFlags::skip_passes,
     {},
     "graph passes to leave out, separated by commas (bolide inspect --graph lists them)"},
    {"tuning_cache",
     &ModelConfigFlags::tuning_cache,
     {},
     "file of what bolide tune has measured; empty: one for each GPU in the user's cache folder"},
};

// Errors name the flag.
Result<ModelOptions> to_model_options(const ModelConfigFlags& flags);
// Names between commas, without the spaces around them.
std::set<std::string> split_names(std::string_view list);

}  // namespace bolide
