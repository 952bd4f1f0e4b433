#include "cli/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace bolide::cli {
namespace {

std::string help_text(const BoundOption& option) {
  std::string text(option.sentence);
  if (const std::string range = range_text(option); !range.empty()) text += fmt::format(" ({})", range);
  const std::string value = value_text(option);
  if (!std::holds_alternative<bool*>(option.value) && !value.empty() && value != "\"\"")
    text += fmt::format(" [{}]", value);
  return text;
}

}  // namespace

void add_options(CLI::App& app, std::span<const BoundOption> options, const std::string& group) {
  for (const BoundOption& option : options) {
    CLI::Option* flag = nullptr;
    if (const auto* value = std::get_if<bool*>(&option.value)) {
      flag = app.add_flag(flag_name(option.name), **value, help_text(option));
    } else {
      flag = app.add_option_function<std::string>(
          flag_name(option.name),
          [option](const std::string& text) {
            if (const auto set = set_option(option, text); !set) throw CLI::ValidationError(set.error().text);
          },
          help_text(option));
      flag->type_name(std::string(type_name(option)));
    }
    flag->group(group);
  }
}

bool given(const CLI::App& app, std::string_view option_name) { return app.count(flag_name(option_name)) > 0; }

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

int report(const Error& failure) {
  std::fprintf(stderr, "bolide: error: %s\n", failure.text.c_str());
  return failure.code == Code::kInternal ? 125 : 1;
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

Result<Model> open_with_progress(const std::string& path, const ModelOptions& options) {
  if (!is_terminal(STDERR_FILENO)) return open_model(path, options);
  const auto show = [](PackProgress progress) {
    std::fprintf(stderr, "\r\x1b[Kpacking weights %zu/%zu", progress.done, progress.total);
    if (progress.done == progress.total) std::fprintf(stderr, "\r\x1b[K");
  };
  const FunctionRef<void(PackProgress)> reference(show);
  auto model = open_model(path, options, &reference);
  if (!model) std::fprintf(stderr, "\r\x1b[K");
  return model;
}

}  // namespace bolide::cli
