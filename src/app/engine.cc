#include "app/engine.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "formats/engine_file.h"
#include "formats/json_limits.h"

namespace bolide {
namespace {

using Json = nlohmann::ordered_json;

Error broken(std::string_view what) {
  return error(Code::kInvalid, fmt::format("not a usable engine: {}; make it anew with `bolide build`", what));
}

// Fields of GgufTokenizer, named once for both directions.
template <class Tokenizer, class Visit>
void visit_fields(Tokenizer& t, Visit&& visit) {
  visit("model", t.model), visit("pre", t.pre), visit("tokens", t.tokens), visit("scores", t.scores);
  visit("token_types", t.token_types), visit("merges", t.merges);
  visit("bos_id", t.bos_id), visit("eos_id", t.eos_id), visit("eot_id", t.eot_id), visit("eom_id", t.eom_id);
  visit("unknown_id", t.unknown_id), visit("separator_id", t.separator_id), visit("padding_id", t.padding_id);
  visit("cls_id", t.cls_id), visit("mask_id", t.mask_id);
  visit("add_bos", t.add_bos), visit("add_eos", t.add_eos), visit("add_sep", t.add_sep);
  visit("add_space_prefix", t.add_space_prefix), visit("remove_extra_whitespaces", t.remove_extra_whitespaces);
  visit("escape_whitespaces", t.escape_whitespaces);
}

struct FieldWriter {
  Json* json;
  template <class T>
  void operator()(const char* name, const T& value) {
    (*json)[name] = value;
  }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value.has_value()) (*json)[name] = *value;
  }
};

// Takes what has the field's type; `good` says whether everything had.
struct FieldReader {
  template <class T>
  static bool fits(const Json& item) {
    if constexpr (std::is_same_v<T, std::string>) return item.is_string();
    if constexpr (std::is_same_v<T, bool>) return item.is_boolean();
    if constexpr (std::is_floating_point_v<T>) return item.is_number();
    return item.is_number_integer();
  }
  const Json* json;
  bool good = true;

  const Json* find(const char* name) const {
    const auto it = json->find(name);
    return it == json->end() ? nullptr : &*it;
  }
  void operator()(const char* name, std::string& value) {
    const Json* found = find(name);
    if (found != nullptr && found->is_string())
      value = found->get<std::string>();
    else
      good = false;
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& value) {
    const Json* found = find(name);
    if (found == nullptr || !found->is_array()) return void(good = false);
    value.reserve(found->size());
    for (const Json& item : *found) {
      if (!fits<T>(item)) return void(good = false);
      value.push_back(item.get<T>());
    }
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    const Json* found = find(name);
    if (found == nullptr) return;
    if (fits<T>(*found))
      value = found->get<T>();
    else
      good = false;
  }
};

std::string bytes_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// CBOR: strings with their length, no escapes, so that fifty thousand tokens are read in a few milliseconds.
std::string tokenizer_section(const TokenizerAssets& assets) {
  Json json = Json::object();
  json["tokenizer_json"] = assets.tokenizer_json;
  json["tokenizer_config_json"] = assets.tokenizer_config_json;
  if (assets.gguf.has_value()) visit_fields(*assets.gguf, FieldWriter{&json["gguf"]});
  return bytes_text(Json::to_cbor(json));
}

// True if this is one CBOR item of the kinds that tokenizer_section writes, nested at most `depth_max` deep. The
// library descends by recursion, so hostile nesting is refused before it reads.
bool plain_cbor(Bytes bytes, size_t depth_max) {
  std::vector<uint64_t> left = {1};  // items still to come, by level
  size_t at = 0;
  while (!left.empty()) {
    if (left.back() == 0) {
      left.pop_back();
      continue;
    }
    --left.back();
    if (at == bytes.size()) return false;
    const auto first = std::to_integer<uint8_t>(bytes[at++]);
    const int major = first >> 5, info = first & 31;
    if (info >= 28 || major == 6) return false;  // indefinite lengths and tags
    uint64_t value = static_cast<uint64_t>(info);
    if (info >= 24) {
      const size_t width = size_t{1} << (info - 24);
      if (bytes.size() - at < width) return false;
      value = 0;
      for (size_t i = 0; i < width; ++i) value = value << 8 | std::to_integer<uint8_t>(bytes[at++]);
    }
    if (major == 2 || major == 3) {
      if (value > bytes.size() - at) return false;
      at += value;
    } else if (major == 4 || major == 5) {
      // An item takes a byte at least.
      if (left.size() > depth_max || value > (bytes.size() - at) / (major == 5 ? 2 : 1)) return false;
      left.push_back(major == 5 ? 2 * value : value);
    }
  }
  return at == bytes.size();
}

Result<TokenizerAssets> read_tokenizer(Bytes bytes) {
  if (!plain_cbor(bytes, /*depth_max=*/4)) return broken("its tokenizer section is malformed");
  const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
  const Json json = Json::from_cbor(begin, begin + bytes.size(), true, /*allow_exceptions=*/false);
  if (!json.is_object()) return broken("its tokenizer section is malformed");
  TokenizerAssets assets;
  FieldReader reader{&json};
  reader("tokenizer_json", assets.tokenizer_json);
  reader("tokenizer_config_json", assets.tokenizer_config_json);
  if (const auto it = json.find("gguf"); it != json.end() && it->is_object()) {
    assets.gguf.emplace();
    FieldReader inner{&*it};
    visit_fields(*assets.gguf, inner);
    reader.good = reader.good && inner.good;
  }
  if (!reader.good) return broken("its tokenizer section is malformed");
  return assets;
}

// generation_config.json's own names, so that its reader reads it again.
std::string generation_section(const GenerationConfig& generation) {
  Json json = Json::object();
  FieldWriter write{&json};
  if (!generation.eos_ids.empty()) json["eos_token_id"] = generation.eos_ids;
  write("bos_token_id", generation.bos_id), write("pad_token_id", generation.pad_id);
  write("temperature", generation.temperature), write("top_k", generation.top_k), write("top_p", generation.top_p);
  write("min_p", generation.min_p), write("repetition_penalty", generation.repetition_penalty);
  write("do_sample", generation.do_sample);
  return json.dump();
}

std::string weight_key(const Value& value) { return to_string(value.type) + " " + to_string(std::span(value.parts)); }

Result<std::string> text_section(const EngineFile& file, std::string_view name) {
  BOLIDE_TRY(const Bytes bytes, file.section(name, true));
  return std::string(as_text(bytes));
}

Result<Json> json_section(const EngineFile& file, std::string_view name) {
  BOLIDE_TRY(const std::string text, text_section(file, name));
  Json json =
      nests_deeper_than(text, kJsonNestingMax) ? Json() : Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || json.is_null()) return broken(fmt::format("its section {} is malformed", name));
  return json;
}

// Bytes that a stored weight of this type must have.
size_t bytes_wanted(const ValueType& type, const Packing* packing) {
  SymbolValues none;
  return packing == nullptr ? type.bytes(none) : packing->bytes(type);
}

Result<std::vector<StoredWeight>> read_weights(const EngineFile& file, const Graph& graph, bool verify) {
  BOLIDE_TRY(const Json list, json_section(file, "weights"));
  if (!list.is_array()) return broken("its list of weights is malformed");
  std::map<std::string, ValueId, std::less<>> values;
  for (size_t i = 0; i < graph.value_count(); ++i)
    if (const Value& value = graph.value(static_cast<ValueId>(i)); value.kind == ValueKind::kWeight)
      values[weight_key(value)] = static_cast<ValueId>(i);
  std::vector<StoredWeight> weights;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& entry = list[i];
    if (!entry.is_object() || !entry.contains("weight") || !entry["weight"].is_string() || !entry.contains("packing") ||
        !entry["packing"].is_string())
      return broken("its list of weights is malformed");
    const auto it = values.find(entry["weight"].get<std::string>());
    if (it == values.end()) return broken(fmt::format("weight {} is not in its graph", i));
    const auto name = entry["packing"].get<std::string>();
    const Packing* packing = name.empty() ? nullptr : find_packing(name);
    if (packing == nullptr && !name.empty())
      return broken(fmt::format("it has weights in layout '{}', which this version does not know", name));
    BOLIDE_TRY(const Bytes bytes, file.section(fmt::format("weight.{}", i), verify));
    const ValueType& type = graph.type(it->second);
    const size_t want = bytes_wanted(type, packing);
    if (want == 0 || bytes.size() != want) return broken(fmt::format("weight {} has {} bytes", i, bytes.size()));
    SymbolValues none;
    TensorView view = make_view(const_cast<std::byte*>(bytes.data()), type.dtype, type.at(none), type.quant);
    weights.push_back({it->second, packing, view, bytes.size(), true, file.file()});
  }
  return weights;
}

void override_compute(Graph& graph, ComputeMode mode) {
  for (const NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (auto* linear = std::get_if<Linear>(&node.op)) linear->compute = choose_compute(mode, graph.type(node.in[1]));
    if (auto* moe = std::get_if<MoeFfn>(&node.op)) moe->compute = choose_compute(mode, graph.type(node.in[3]));
  }
}

Result<Prepared> read_sections(const EngineFile& file, const std::filesystem::path& path, const ModelOptions& options) {
  BOLIDE_TRY(const Json about, json_section(file, "about"));
  BOLIDE_TRY(const std::string config_text, text_section(file, "config"));
  BOLIDE_TRY(const std::string generation_text, text_section(file, "generation"));
  BOLIDE_TRY(const std::string graph_text, text_section(file, "graph"));
  BOLIDE_TRY(const Bytes tokenizer, file.section("tokenizer", true));
  BOLIDE_TRY(const ModelConfig config, ModelConfig::parse(config_text, path.string()));
  BOLIDE_TRY(const ModelConfig generation, ModelConfig::parse(generation_text, path.string()));
  LoadedModel loaded{.path = path, .format = "engine", .name = path.stem().string(), .config = config};
  if (about.is_object() && about.contains("name") && about["name"].is_string())
    loaded.name = about["name"].get<std::string>();
  BOLIDE_TRY(loaded.generation, read_generation_config(&generation, config));
  BOLIDE_TRY(loaded.chat_template, text_section(file, "template"));
  loaded.chat_template_file = path.string();
  BOLIDE_TRY(loaded.tokenizer, read_tokenizer(tokenizer));
  BOLIDE_TRY(loaded.tokenizer.tokenizer_model, text_section(file, "tokenizer_model"));
  if (loaded.tokenizer.gguf.has_value()) {
    BOLIDE_TRY(loaded.tokenizer.gguf->precompiled_charsmap, text_section(file, "charsmap"));
  }
  BOLIDE_TRY(Graph graph, Graph::from_text(graph_text).context("graph"));
  const bool for_gpu = about.is_object() && about.contains("device") && about["device"] == "cuda";
  if (options.dtype != ComputeMode::kAuto || for_gpu != (options.device == DeviceKind::kCuda))
    override_compute(graph, options.dtype);
  BOLIDE_TRY(fit_to_device(graph, options));
  BOLIDE_TRY(auto weights, read_weights(file, graph, options.verify));
  int64_t context_max = 0;
  if (about.is_object() && about.contains("context_max") && about["context_max"].is_number_integer())
    context_max = about["context_max"].get<int64_t>();
  if (context_max < 1) return broken("it does not say how many positions its model has");
  return Prepared{std::move(loaded), std::move(graph), {}, std::move(weights), context_max};
}

// An engine can be made again; what else lies there (the checkpoint itself, perhaps) cannot.
Result<> may_replace(const std::filesystem::path& path) {
  BOLIDE_TRY(check_output_file(path));
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status) || is_engine(path)) return {};
  if (std::filesystem::is_regular_file(status) && std::filesystem::file_size(path, failure) == 0) return {};
  return error(Code::kInvalid,
               fmt::format("{}: is there already and is no engine; choose another name", path.string()));
}

}  // namespace

bool is_engine(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return false;
  const auto file = MappedFile::open(path);
  return file.has_value() && EngineFile::looks_like_engine(file->bytes());
}

Result<Prepared> read_engine(const std::filesystem::path& path, const ModelOptions& options) {
  if (!options.config.empty())
    return error(Code::kInvalid, fmt::format("{}: an engine has its configuration inside; another ({}) cannot be given",
                                             path.string(), options.config.string()));
  BOLIDE_TRY(const EngineFile file, EngineFile::open(path));
  return read_sections(file, path, options).context(path.string());
}

Result<EngineReport> build_engine(const std::filesystem::path& model, const std::filesystem::path& engine,
                                  const ModelOptions& options, const FunctionRef<void(PackProgress)>* progress) {
  if (is_engine(model)) return error(Code::kInvalid, fmt::format("{}: is an engine already", model.string()));
  BOLIDE_TRY(may_replace(engine));
  BOLIDE_TRY(const auto device, make_device(options));
  BOLIDE_TRY(const Prepared prepared, prepare_checkpoint(model, options, device->info()));
  BOLIDE_TRY(const Tokenizer tokenizer,
             make_tokenizer(prepared.loaded).context(model.string()));  // a broken one is refused now
  constexpr int32_t kManyTokens = 512;  // for the choice of layouts
  SymbolValues sizes;
  sizes.value = {std::max(options.tokens_per_step, kManyTokens), options.sequences, options.sequences};
  int repacked = 0;
  BOLIDE_TRY(const auto uses, choose_packings(prepared.graph, kernels_for(options), device->info(), sizes));
  BOLIDE_TRY(const WeightStore weights, make_weights(prepared, uses, device->info(), &repacked, progress));

  const LoadedModel& loaded = prepared.loaded;
  Json about = {{"name", loaded.name},
                {"from", loaded.format},
                {"context_max", prepared.context_max},
                {"device", options.device == DeviceKind::kCpu ? "cpu" : "cuda"},
                {"processor", fingerprint(device->info().cpu)},
                {"isa", to_string(device->info().isa)}};
  Json list = Json::array();
  for (const StoredWeight& weight : weights.all())
    list.push_back({{"weight", weight_key(prepared.graph.value(weight.value))},
                    {"packing", weight.packing == nullptr ? "" : weight.packing->name}});
  const std::string charsmap = loaded.tokenizer.gguf.has_value() ? loaded.tokenizer.gguf->precompiled_charsmap : "";
  const std::pair<const char*, std::string> texts[] = {
      {"about", about.dump(-1, ' ', false, Json::error_handler_t::replace)},
      {"config", loaded.config.to_text()},
      {"generation", generation_section(loaded.generation)},
      {"template", loaded.chat_template},
      {"tokenizer", tokenizer_section(loaded.tokenizer)},
      {"tokenizer_model", loaded.tokenizer.tokenizer_model},
      {"charsmap", charsmap},
      {"graph", prepared.graph.to_text()},
      {"weights", list.dump()},
  };
  std::vector<EngineSectionData> sections;
  for (const auto& [name, text] : texts) sections.push_back({name, as_bytes(text)});
  for (size_t i = 0; i < weights.all().size(); ++i)
    sections.push_back({fmt::format("weight.{}", i), {weights.all()[i].view.data, weights.all()[i].bytes}});
  BOLIDE_TRY(write_engine_file(engine, sections));
  std::error_code ignored;
  return EngineReport{static_cast<int>(weights.all().size()), std::filesystem::file_size(engine, ignored)};
}

}  // namespace bolide
