#include "cli/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "base/file.h"
#include "base/utf8.h"

namespace bolide::cli {
namespace {

constexpr size_t kBytesMax = 1 << 20;

Error wrong(const ConfigFile& file, const YAML::Mark& mark, std::string_view what) {
  return error(Code::kInvalid, fmt::format("{}, line {}: {}", file.name, mark.line + 1, what));
}

// A scalar's text. False for lists, mappings and nothing.
bool scalar(const YAML::Node& node, std::string& text) {
  if (!node.IsScalar()) return false;
  text = node.Scalar();
  return true;
}

Result<> read_models(const YAML::Node& node, ConfigFile& file) {
  std::string model;
  if (node.IsMap()) {
    for (const auto& entry : node) {
      std::string name;
      if (!scalar(entry.first, name) || !scalar(entry.second, model))
        return wrong(file, entry.first.Mark(), "under models each name has one path, as in \"small: model.gguf\"");
      file.models.push_back(fmt::format("{}={}", name, model));
    }
  } else if (node.IsSequence()) {
    for (const auto& entry : node) {
      if (!scalar(entry, model)) return wrong(file, entry.Mark(), "a model is given as [NAME=]MODEL");
      file.models.push_back(model);
    }
  } else if (scalar(node, model)) {
    file.models.push_back(model);
  } else {
    return wrong(file, node.Mark(), "models has none; give a list of [NAME=]MODEL or names with paths");
  }
  return {};
}

Result<ConfigFile> read_document(const YAML::Node& root, ConfigFile file) {
  if (root.IsNull()) return file;
  if (!root.IsMap()) return wrong(file, root.Mark(), "there must be \"option: value\" on each line");
  bool has_models = false;
  for (const auto& entry : root) {
    ConfigFile::Entry read;
    if (!scalar(entry.first, read.key)) return wrong(file, entry.first.Mark(), "an option's name is one word");
    std::replace(read.key.begin(), read.key.end(), '-', '_');
    read.line = entry.first.Mark().line + 1;
    if (read.key == "models") {
      if (has_models) return wrong(file, entry.first.Mark(), "models is given twice");
      has_models = true;
      BOLIDE_TRY(read_models(entry.second, file));
      continue;
    }
    if (!scalar(entry.second, read.value))
      return wrong(file, entry.first.Mark(),
                   fmt::format("{:.80} needs one value{}", read.key,
                               entry.second.IsNull() ? "; \"\" for an empty one" : ", not a list or a mapping"));
    const auto same = [&](const ConfigFile::Entry& other) { return other.key == read.key; };
    if (std::any_of(file.entries.begin(), file.entries.end(), same))
      return wrong(file, entry.first.Mark(), fmt::format("{:.80} is given twice", read.key));
    file.entries.push_back(std::move(read));
  }
  return file;
}

// A scalar that reads back as this text, whatever it looks like.
std::string yaml_text(std::string_view text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << std::string(text);
  return out.c_str();
}

std::string key_of(std::string_view name) { return flag_name(name).substr(2); }

}  // namespace

Result<ConfigFile> parse_config(std::string_view yaml, std::string_view name) {
  ConfigFile file;
  file.name = name;
  if (utf8_invalid_at(yaml) != kUtf8Valid) return error(Code::kInvalid, fmt::format("{}: is not UTF-8 text", name));
  // yaml-cpp takes a quoted text without an end to be ended by the file's, but not if no line ends there.
  yaml = yaml.substr(0, yaml.find_last_not_of(" \t\r\n") + 1);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(yaml));
    if (documents.size() > 1) return error(Code::kInvalid, fmt::format("{}: has several YAML documents", name));
    if (documents.empty()) return file;
    return read_document(documents.front(), std::move(file));
  } catch (const YAML::Exception& failure) {
    if (failure.msg == YAML::ErrorMsg::EOF_IN_SCALAR)
      return wrong(file, failure.mark, "a text in quotation marks, which begins here or above, does not end");
    return wrong(file, failure.mark, failure.msg);
  }
}

Result<ConfigFile> read_config(const std::string& path) {
  BOLIDE_TRY(const std::string text, read_file(path, kBytesMax));
  return parse_config(text, path);
}

Result<> apply_config(const ConfigFile& file, std::span<const BoundOption> options,
                      const std::function<bool(std::string_view name)>& is_given) {
  std::vector<std::string_view> names{"models"};
  for (const BoundOption& option : options) names.push_back(option.name);
  for (const ConfigFile::Entry& entry : file.entries) {
    const auto option =
        std::find_if(options.begin(), options.end(), [&](const BoundOption& one) { return one.name == entry.key; });
    if (option == options.end()) {
      const std::string_view near = nearest_name(entry.key, names);
      return error(Code::kInvalid, fmt::format("{}, line {}: there is no option {:.80}{}", file.name, entry.line,
                                               entry.key, near.empty() ? "" : fmt::format(", did you mean {}?", near)));
    }
    if (is_given(option->name)) continue;
    if (const auto set = set_option(*option, entry.value); !set)
      return error(Code::kInvalid, fmt::format("{}, line {}: {}", file.name, entry.line, set.error().text));
  }
  return {};
}

std::string config_text(std::span<const OptionGroup> groups, std::span<const std::string> models) {
  std::string text = "models:\n";
  if (models.empty()) text = "models: []\n";
  for (const std::string& model : models) text += fmt::format("  - {}\n", yaml_text(model));
  for (const OptionGroup& group : groups) {
    text += fmt::format("\n# {}\n", group.heading);
    for (const BoundOption& option : group.options) {
      const std::string range = range_text(option);
      text += fmt::format("# {}{}\n", option.sentence, range.empty() ? "" : fmt::format(" ({})", range));
      const auto* value = std::get_if<std::string*>(&option.value);
      text += fmt::format("{}: {}\n", key_of(option.name), value != nullptr ? yaml_text(**value) : value_text(option));
    }
  }
  return text;
}

}  // namespace bolide::cli
