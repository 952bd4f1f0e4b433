#include "eval/golden_files.h"

#include <fmt/format.h>

#include "base/file.h"
#include "formats/json_object.h"
#include "formats/safetensors.h"

namespace bolide {
namespace {

using nlohmann::json;

constexpr size_t kJsonBytesMax = size_t{16} << 20;

Result<std::vector<int32_t>> read_ids(const JsonObject& object, std::string_view key) {
  BOLIDE_TRY(const json* list, object.array(key));
  std::vector<int32_t> ids;
  for (const json& value : *list) {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > INT32_MAX)
      return error(Code::kInvalid, fmt::format("{}: is not a list of token ids", object.at(key)));
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

Result<double> read_number(const JsonObject& object, std::string_view key) {
  BOLIDE_TRY(const json* value, object.require(key));
  if (!value->is_number()) return error(Code::kInvalid, fmt::format("{}: is not a number", object.at(key)));
  return value->get<double>();
}

Result<> read_greedy(const JsonObject& object, GoldenPrompt* prompt) {
  BOLIDE_TRY(prompt->greedy, read_ids(object, "greedy"));
  BOLIDE_TRY(const json* margins, object.array("greedy_margins"));
  for (const json& value : *margins) {
    if (!value.is_number())
      return error(Code::kInvalid, fmt::format("{}: is not a list of numbers", object.at("greedy_margins")));
    prompt->greedy_margins.push_back(value.get<double>());
  }
  if (prompt->greedy_margins.size() != prompt->greedy.size())
    return error(Code::kInvalid, fmt::format("{}: has {} entries for {} tokens", object.at("greedy_margins"),
                                             prompt->greedy_margins.size(), prompt->greedy.size()));
  return {};
}

Result<std::vector<GoldenPrompt>> read_prompts(const JsonObject& object, const std::vector<GoldenPrompt>* ids_from) {
  BOLIDE_TRY(const json* list, object.array("prompts"));
  std::vector<GoldenPrompt> prompts;
  for (size_t i = 0; i < list->size(); ++i) {
    BOLIDE_TRY(const JsonObject entry, JsonObject::of((*list)[i], fmt::format("{}[{}]", object.at("prompts"), i)));
    GoldenPrompt prompt;
    BOLIDE_TRY(prompt.name, entry.string("name"));
    if (ids_from == nullptr) {
      BOLIDE_TRY(prompt.ids, read_ids(entry, "ids"));
    } else if (i < ids_from->size() && (*ids_from)[i].name == prompt.name) {
      prompt.ids = (*ids_from)[i].ids;
    }
    if (prompt.ids.empty()) return error(Code::kInvalid, fmt::format("{}: has no ids", entry.path()));
    BOLIDE_TRY(read_greedy(entry, &prompt));
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return error(Code::kInvalid, fmt::format("{}: is empty", object.at("prompts")));
  return prompts;
}

Result<> read_text(const JsonObject& golden, std::optional<GoldenText>* out) {
  if (golden.find("text") == nullptr) return {};
  BOLIDE_TRY(const JsonObject entry, golden.object("text"));
  GoldenText text;
  BOLIDE_TRY(text.text, entry.string("text"));
  BOLIDE_TRY(text.prompt.ids, read_ids(entry, "ids"));
  text.prompt.name = "text";
  if (text.prompt.ids.empty()) return error(Code::kInvalid, fmt::format("{}: is empty", entry.at("ids")));
  BOLIDE_TRY(read_greedy(entry, &text.prompt));
  BOLIDE_TRY(text.greedy_text, entry.string("greedy_text"));
  *out = std::move(text);
  return {};
}

Result<> read_tolerance(const JsonObject& golden, Golden* out) {
  BOLIDE_TRY(const JsonObject lines, golden.object("tolerance"));
  for (const auto& [name, line] : lines.json().items()) {
    BOLIDE_TRY(const JsonObject values, JsonObject::of(line, lines.at(name)));
    for (const auto& [metric, value] : line.items()) {
      BOLIDE_TRY(out->tolerance[name][metric], read_number(values, metric));
    }
  }
  return {};
}

Result<> read_document(const JsonObject& golden, Golden* out) {
  BOLIDE_TRY(const int64_t format, golden.integer("format", 1));
  if (format != 1) return error(Code::kUnsupported, fmt::format("format: is {}; this version reads 1", format));
  BOLIDE_TRY(out->prompts, read_prompts(golden, nullptr));
  BOLIDE_TRY(auto full, golden.optional_string("full_logits"));
  BOLIDE_TRY(auto trace, golden.optional_string("trace"));
  out->full_logits = std::move(full).value_or("");
  out->trace = std::move(trace).value_or("");
  if (golden.find("nll") != nullptr) {
    BOLIDE_TRY(const JsonObject nll, golden.object("nll"));
    BOLIDE_TRY(out->nll_ids, read_ids(nll, "ids"));
    BOLIDE_TRY(out->nll_mean, read_number(nll, "mean"));
    if (out->nll_ids.size() < 2) return error(Code::kInvalid, "nll.ids: has fewer than 2 ids");
  }
  BOLIDE_TRY(read_text(golden, &out->text));
  if (golden.find("weight_only") != nullptr) {
    BOLIDE_TRY(const JsonObject weight_only, golden.object("weight_only"));
    BOLIDE_TRY(out->weight_only, read_prompts(weight_only, &out->prompts));
    BOLIDE_TRY(const JsonObject nll, weight_only.object("nll"));
    BOLIDE_TRY(out->weight_only_nll_mean, read_number(nll, "mean"));
  }
  return read_tolerance(golden, out);
}

// Last logits of every prompt have one size, and every id lies within it.
Result<> check_sizes(const Golden& golden) {
  const std::string first = golden.prompts[0].name + ".last_logits";
  const WeightInfo* logits = golden.tensors->find(first);
  if (logits == nullptr || logits->shape.rank != 1)
    return error(Code::kInvalid, fmt::format("{}: {} is missing or no vector", golden.tensors->label(), first));
  const int64_t vocab = logits->shape[0];
  const auto within = [&](const std::vector<int32_t>& ids, std::string_view what) -> Result<> {
    for (const int32_t id : ids)
      if (id >= vocab) return error(Code::kInvalid, fmt::format("{}: id {} is not below {}", what, id, vocab));
    return {};
  };
  for (const auto* prompts : {&golden.prompts, &golden.weight_only})
    for (const GoldenPrompt& prompt : *prompts) {
      const std::string name = (prompts == &golden.weight_only ? "weight_only." : "") + prompt.name + ".last_logits";
      const WeightInfo* info = golden.tensors->find(name);
      if (info == nullptr || info->shape != logits->shape)
        return error(Code::kInvalid, fmt::format("{}: {} is missing or has another size than {}",
                                                 golden.tensors->label(), name, first));
      BOLIDE_TRY(within(prompt.ids, prompt.name));
      BOLIDE_TRY(within(prompt.greedy, prompt.name));
    }
  BOLIDE_TRY(within(golden.nll_ids, "nll"));
  if (golden.text.has_value()) {
    BOLIDE_TRY(within(golden.text->prompt.ids, "text"));
    BOLIDE_TRY(within(golden.text->prompt.greedy, "text"));
  }
  return {};
}

}  // namespace

Result<Golden> read_golden(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "golden.json";
  BOLIDE_TRY(const std::string text, read_file(path, kJsonBytesMax));
  BOLIDE_TRY(const json document, parse_json(text, kJsonBytesMax).context(path.string()));
  BOLIDE_TRY(const JsonObject object, JsonObject::of(document, "").context(path.string()));
  Golden golden;
  golden.name = std::filesystem::weakly_canonical(folder).filename().string();
  BOLIDE_TRY(read_document(object, &golden).context(path.string()));
  BOLIDE_TRY(golden.tensors, SafetensorsSource::open_file(folder / "golden.safetensors"));
  BOLIDE_TRY(check_sizes(golden).context(path.string()));
  return golden;
}

}  // namespace bolide
