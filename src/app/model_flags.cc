#include "app/model_flags.h"

#include <fmt/format.h>

#include <charconv>

namespace bolide {

namespace {

// "auto", "cpu", "cuda" or "cuda:N".
Result<> set_device(std::string_view text, ModelOptions& options) {
  options.device = text == "auto" ? auto_device() : text == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
  if (text == "auto" || text == "cpu" || text == "cuda") return {};
  std::string_view digits = text;
  if (digits.starts_with("cuda:")) {
    digits.remove_prefix(5);
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), options.cuda.index);
    if (status == std::errc() && end == digits.data() + digits.size() && options.cuda.index >= 0) return {};
  }
  return error(Code::kInvalid, fmt::format("--device {}: expected auto, cpu, cuda or cuda:N", text));
}

}  // namespace

Result<ModelOptions> to_model_options(const ModelConfigFlags& flags) {
  ModelOptions options;
  BOLIDE_TRY(set_device(flags.device, options));
  options.cuda.libraries = flags.cuda_libs;
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
