#include "load/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "formats/gguf.h"
#include "formats/narrow_doubles.h"
#include "synth/architectures.h"

namespace bolide {
namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

Error not_a_model(const std::filesystem::path& path, std::string_view what, Code code = Code::kUnsupported) {
  return error(code, fmt::format("{}: {}", path.string(), what));
}

Error missing(const std::filesystem::path& path) {
  const std::string name = path.string();
  // "HuggingFaceTB/SmolLM2-135M-Instruct" and the like.
  const bool like_hub_name = !path.is_absolute() && std::count(name.begin(), name.end(), '/') == 1 &&
                             !name.starts_with('.') && !name.ends_with('/') && !name.ends_with(".gguf");
  return not_a_model(path,
                     like_hub_name ? "no such file or folder; a model is not downloaded by its name: download it, then "
                                     "give its GGUF file or its folder"
                                   : "no such file or folder; MODEL is a GGUF file or a folder with config.json and "
                                     "safetensors files",
                     Code::kNotFound);
}

// A file that is no GGUF: what it probably is, and what to do.
Error wrong_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (ends_with_any(name, {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack"}))
    return not_a_model(path,
                       "is a checkpoint in a format that is not read; convert the model to safetensors (in Python: "
                       "model.save_pretrained(folder, safe_serialization=True)) and give the folder");
  if (name.ends_with(".onnx")) return not_a_model(path, "ONNX models cannot be run yet; give a GGUF file or a folder");
  if (ends_with_any(name, {".safetensors", ".json"}))
    return not_a_model(path, "give the folder that it is in: config.json and the tokenizer are read as well",
                       Code::kInvalid);
  return not_a_model(path, "is no GGUF file (it does not begin with \"GGUF\"), and no folder with config.json",
                     Code::kInvalid);
}

}  // namespace

Result<LoadedModel> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  if (is_synth_name(path.string())) return load_synth(path.string(), options);
  std::error_code problem;
  const auto status = std::filesystem::status(path, problem);
  if (status.type() == std::filesystem::file_type::not_found || path.empty()) return missing(path);
  if (std::filesystem::is_directory(status)) {
    BOLIDE_TRY(LoadedModel model, load_hf_directory(path, options));
    model.weights = narrow_doubles(std::move(model.weights));
    return model;
  }
  // Pipes, LFS pointers and unreadable files are refused here, by name.
  BOLIDE_TRY(const auto file, MappedFile::open(path));
  if (!looks_like_gguf(file.bytes()) && !path.filename().string().ends_with(".gguf")) return wrong_file(path);
  if (!options.config.empty())
    return error(Code::kInvalid,
                 fmt::format("{}: a GGUF file has its configuration inside; another ({}) cannot be given",
                             path.string(), options.config.string()));
  BOLIDE_TRY(LoadedModel model, load_gguf(path));
  model.weights = narrow_doubles(std::move(model.weights));
  return model;
}

}  // namespace bolide
