#include "app/model_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace bolide {
namespace {

constexpr int32_t kCudaIndexMax = 255;  // no machine has more

// "cuda" is "cuda:0".
Result<int32_t> cuda_index(std::string_view device) {
  if (device == "cuda") return 0;
  const std::string_view prefix = "cuda:";
  int32_t index = -1;
  if (device.starts_with(prefix)) {
    const char* end = device.data() + device.size();
    const auto [stop, failure] = std::from_chars(device.data() + prefix.size(), end, index);
    if (failure != std::errc() || stop != end) index = -1;
  }
  if (index >= 0 && index <= kCudaIndexMax) return index;
  return error(Code::kInvalid, fmt::format("--device {:.60}: expected auto, cpu, cuda, or cuda:N with N from 0 to {}",
                                           device, kCudaIndexMax));
}

Result<> set_device(std::string_view text, ModelOptions& options) {
  options.device = text == "auto" ? auto_device() : text == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
  if (text != "auto" && text != "cpu") {
    BOLIDE_TRY(options.cuda.index, cuda_index(text));
  }
  return {};
}

}  // namespace

Result<ModelOptions> to_model_options(const ModelConfigFlags& flags) {
  ModelOptions options;
  if (flags.dtype == "f16" || flags.dtype == "tf32")
    return error(
        Code::kInvalid,
        fmt::format("--dtype {} is for ONNX models on GPUs; language models take bf16, f32 or int8", flags.dtype));
  if (flags.memory_limit != 0) return error(Code::kInvalid, "--memory-limit is for ONNX models");
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
  options.kv_dtype = flags.kv_type == "f32" ? DType::kF32 : flags.kv_type == "fp8" ? DType::kF8E4M3 : DType::kBF16;
  if (options.kv_dtype == DType::kF8E4M3 && options.device == DeviceKind::kCpu)
    return error(Code::kInvalid, "--kv-type fp8 is for GPUs: on the CPU ask for bf16 or f32");
  options.deterministic = flags.deterministic;
  options.verify = flags.verify;
  options.tuning_cache = flags.tuning_cache;
  options.context = flags.context;
  options.block_tokens = flags.block_tokens;
  options.skip_passes = split_names(flags.skip_passes);
  return options;
}

std::set<std::string> split_names(std::string_view list) {
  std::set<std::string> names;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view name = list.substr(0, comma);
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    name = name.substr(0, name.find_last_not_of(' ') + 1);
    names.emplace(name);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return names;
}

}  // namespace bolide
