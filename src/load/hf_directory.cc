// A Hugging Face folder: config.json, generation_config.json, safetensors, tokenizer files, chat template.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "formats/json_limits.h"
#include "formats/quantised_checkpoint.h"
#include "formats/safetensors.h"
#include "load/family_weights.h"
#include "load/load.h"
#include "models/families.h"

namespace bolide {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

// Published files have up to 1.2 MB, most of it added tokens.
constexpr uint64_t kTokenizerConfigBytesMax = 4u << 20;

// What permission hides counts as there: opening it then says so.
bool is_there(const Path& path) {
  std::error_code problem;
  return std::filesystem::exists(path, problem) || problem == std::errc::permission_denied;
}

// A file that may be missing; then the result is empty.
Result<std::string> read_if_there(const Path& path) {
  if (!is_there(path)) return std::string();
  return read_file(path);
}

Result<ModelConfig> read_config(const Path& path) {
  BOLIDE_TRY(const auto text, read_file(path, ModelConfig::kConfigBytesMax));
  return ModelConfig::parse(text, path.string());
}

// Names of files in the folder that end like this, sorted.
std::vector<std::string> files_ending(const Path& folder, std::string_view ending) {
  std::vector<std::string> list;
  std::error_code problem;
  for (std::filesystem::directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem))
    if (std::string name = it->path().filename().string(); name.ends_with(ending)) list.push_back(std::move(name));
  std::sort(list.begin(), list.end());
  return list;
}

Error no_config(const Path& folder) {
  const auto ggufs = files_ending(folder, ".gguf");
  if (!ggufs.empty())
    return error(Code::kInvalid, fmt::format("{}: has no config.json, but GGUF files; give one of them: {}",
                                             folder.string(), (folder / ggufs.front()).string()));
  if (!files_ending(folder, ".onnx").empty())
    return error(Code::kUnsupported, fmt::format("{}: holds an ONNX model, which cannot be run yet", folder.string()));
  return error(Code::kInvalid,
               fmt::format("{}: has no config.json; a model folder has config.json, safetensors files and "
                           "tokenizer.json",
                           folder.string()));
}

Error no_weights(const Path& folder) {
  constexpr size_t kNamesMax = 5;
  if (const auto others = files_ending(folder, ".safetensors"); !others.empty()) {
    const std::vector<std::string> some(others.begin(), others.begin() + std::min(others.size(), kNamesMax));
    return error(Code::kNotFound,
                 fmt::format("{}: model.safetensors is missing, and there is no model.safetensors.index.json that says "
                             "in which files the weights are; the folder has {}{}; if that is the whole model, rename "
                             "it to model.safetensors",
                             folder.string(), fmt::join(some, ", "), others.size() > kNamesMax ? ", ..." : ""));
  }
  for (const char* ending : {".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"})
    if (const auto old = files_ending(folder, ending); !old.empty())
      return error(Code::kUnsupported,
                   fmt::format("{}: has its weights in {}, a format that is not read; convert the model to safetensors "
                               "(in Python: model.save_pretrained(folder, safe_serialization=True))",
                               folder.string(), old.front()));
  return error(Code::kNotFound, fmt::format("{}: has no safetensors file", folder.string()));
}

Result<std::shared_ptr<const WeightSource>> open_weights(const Path& folder) {
  const auto widen = [](auto source) { return std::shared_ptr<const WeightSource>(std::move(source)); };
  if (const Path index = folder / "model.safetensors.index.json"; is_there(index)) {
    BOLIDE_TRY(auto source, SafetensorsSource::open_index(index));
    return widen(std::move(source));
  }
  const Path file = folder / "model.safetensors";
  if (!is_there(file)) return no_weights(folder);
  BOLIDE_TRY(auto source, SafetensorsSource::open_file(file));
  return widen(std::move(source));
}

// tokenizer_config.json has the template as a string or as a list of {"name", "template"}.
Result<std::string> template_in(const std::string& text, const Path& path) {
  if (text.empty()) return std::string();
  if (text.size() > kTokenizerConfigBytesMax || nests_deeper_than(text, kJsonNestingMax))
    return error(Code::kInvalid, fmt::format("{}: is larger than {} bytes or nests deeper than {}", path.string(),
                                             kTokenizerConfigBytesMax, kJsonNestingMax));
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded())
    return error(Code::kInvalid, fmt::format("{}: {}", path.string(), describe_json_error(text)));
  if (!root.is_object())
    return error(Code::kInvalid, fmt::format("{}: is {}, expected an object", path.string(), root.type_name()));
  const auto it = root.find("chat_template");
  if (it == root.end()) return std::string();
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return std::string();
  for (const Json& entry : *it)
    if (entry.is_object() && entry.value("name", Json()) == "default" && entry.value("template", Json()).is_string())
      return entry["template"].get<std::string>();
  return std::string();
}

// From the first of the files that has one.
Result<> read_chat_template(const Path& folder, LoadedModel* model) {
  Path file = folder / "chat_template.jinja";
  if (is_there(file)) {
    BOLIDE_TRY(model->chat_template, read_file(file, kTokenizerConfigBytesMax));
  } else {
    file = folder / "tokenizer_config.json";
    BOLIDE_TRY(model->chat_template, template_in(model->tokenizer.tokenizer_config_json, file));
  }
  if (model->chat_template.empty()) {
    file = folder / "chat_template.json";
    BOLIDE_TRY(const auto json, read_if_there(file));
    BOLIDE_TRY(model->chat_template, template_in(json, file));
  }
  if (!model->chat_template.empty()) model->chat_template_file = file.string();
  return {};
}

}  // namespace

Result<LoadedModel> load_hf_directory(const Path& folder, const LoadOptions& options) {
  const Path config_path = options.config.empty() ? folder / "config.json" : options.config;
  if (options.config.empty() && !is_there(config_path)) return no_config(folder);
  LoadedModel model;
  model.path = folder;
  model.format = "safetensors";
  const Path name = folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
  model.name = name.string();
  BOLIDE_TRY(model.config, read_config(config_path));
  // First of all: the family says what everything else is called.
  const auto family = find_family(model.config);
  if (!family && !options.any_family) return Error(family.error());
  if (family) model.config = model.config.with_aliases((*family)->fields);

  std::optional<ModelConfig> generation;
  if (const Path path = folder / "generation_config.json"; is_there(path)) {
    BOLIDE_TRY(generation, read_config(path));
  }
  BOLIDE_TRY(model.generation, read_generation_config(generation ? &*generation : nullptr, model.config));

  BOLIDE_TRY(auto stored, open_weights(folder));
  if (family) {
    BOLIDE_TRY(stored, family_weights(std::move(stored), **family));
  }
  BOLIDE_TRY(model.weights, read_quantised(std::move(stored), model.config));
  if (family) BOLIDE_TRY(check_config_against_weights(model.config, *model.weights));

  BOLIDE_TRY(model.tokenizer.tokenizer_json, read_if_there(folder / "tokenizer.json"));
  BOLIDE_TRY(model.tokenizer.tokenizer_config_json, read_if_there(folder / "tokenizer_config.json"));
  if (const Path path = folder / "tokenizer_config.json";
      model.tokenizer.tokenizer_config_json.empty() && is_there(path))
    return error(Code::kInvalid, fmt::format("{}: {}", path.string(), describe_json_error("")));
  BOLIDE_TRY(model.tokenizer.tokenizer_model, read_if_there(folder / "tokenizer.model"));
  BOLIDE_TRY(read_chat_template(folder, &model));
  return model;
}

}  // namespace bolide
