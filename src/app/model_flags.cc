#include "app/model_flags.h"

#include <fmt/format.h>

namespace bolide {

Result<ModelOptions> to_model_options(const ModelConfigFlags& flags) {
  ModelOptions options;
  if (flags.device.starts_with("cuda")) {
    BOLIDE_TRY(const auto device, make_cuda_device(0));
  } else if (flags.device != "auto" && flags.device != "cpu") {
    return error(Code::kInvalid, fmt::format("--device {}: expected auto, cpu, cuda or cuda:N", flags.device));
  }
  options.config = flags.config;
  options.threads = flags.threads;
  if (!flags.isa.empty()) {
    BOLIDE_TRY(options.isa, parse_isa(flags.isa));
  }
  options.dtype = flags.dtype == "f32"    ? ComputeMode::kF32
                  : flags.dtype == "bf16" ? ComputeMode::kBF16
                  : flags.dtype == "int8" ? ComputeMode::kInt8
                                          : ComputeMode::kAuto;
  options.kv_dtype = flags.kv_type == "f32" ? DType::kF32 : DType::kBF16;
  options.deterministic = flags.deterministic;
  options.verify = flags.verify;
  options.context = flags.context;
  options.block_tokens = flags.block_tokens;
  std::string_view rest = flags.skip_passes;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    options.skip_passes.emplace(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return options;
}

}  // namespace bolide
