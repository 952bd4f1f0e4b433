#include "formats/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "formats/json_object.h"
#include "formats/tokenizer_json_steps.h"

namespace bolide {
namespace {

using nlohmann::json;

// Ids index tables, so a file cannot ask for one far above the number of its tokens.
constexpr int64_t kIdsPerTokenMax = 8;
constexpr int64_t kIdSlack = 1 << 18;
constexpr size_t kJsonBytesMax = size_t{256} << 20;

Result<int32_t> checked_id(int64_t id, size_t token_count, std::string_view what) {
  if (id < 0 || id > static_cast<int64_t>(token_count) * kIdsPerTokenMax + kIdSlack || id > INT32_MAX)
    return error(Code::kInvalid,
                 fmt::format("{}: id {} does not fit a vocabulary of {} tokens", what, id, token_count));
  return static_cast<int32_t>(id);
}

Result<std::vector<VocabEntry>> parse_vocab_map(const JsonObject& model) {
  BOLIDE_TRY(const JsonObject vocab, model.object("vocab"));
  std::vector<VocabEntry> entries;
  entries.reserve(vocab.json().size());
  for (const auto& [text, id] : vocab.json().items()) {
    if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX))
      return error(Code::kInvalid, fmt::format("{}: the id of \"{}\" is not a token id", vocab.path(), text));
    BOLIDE_TRY(const int32_t value, checked_id(id.get<int64_t>(), vocab.json().size(), vocab.path()));
    entries.push_back({text, value});
  }
  // By id, so that the spec does not depend on the order in the file.
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.id != b.id ? a.id < b.id : a.text < b.text; });
  return entries;
}

Result<std::vector<token_model::Merge>> parse_merges(const JsonObject& model) {
  BOLIDE_TRY(const json* merges, model.array("merges"));
  std::vector<token_model::Merge> result;
  result.reserve(merges->size());
  for (const json& merge : *merges) {
    const auto wrong = [&] {
      return error(Code::kInvalid, fmt::format("{}[{}]: is not two tokens", model.at("merges"), result.size()));
    };
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return wrong();
      result.push_back({text.substr(0, space), text.substr(space + 1)});
    } else {
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) return wrong();
      result.push_back({merge[0].get<std::string>(), merge[1].get<std::string>()});
    }
  }
  return result;
}

Result<token_model::Bpe> parse_bpe(const JsonObject& model) {
  token_model::Bpe bpe;
  if (const json* dropout = model.find("dropout");
      dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0))
    return error(Code::kUnsupported,
                 fmt::format("{}: dropout makes the ids random; set it to null", model.at("dropout")));
  BOLIDE_TRY(bpe.merges, parse_merges(model));
  BOLIDE_TRY(bpe.unk_token, model.optional_string("unk_token"));
  BOLIDE_TRY(std::optional<std::string> prefix, model.optional_string("continuing_subword_prefix"));
  BOLIDE_TRY(std::optional<std::string> suffix, model.optional_string("end_of_word_suffix"));
  bpe.continuing_subword_prefix = std::move(prefix).value_or("");
  bpe.end_of_word_suffix = std::move(suffix).value_or("");
  BOLIDE_TRY(bpe.byte_fallback, model.boolean("byte_fallback", false));
  BOLIDE_TRY(bpe.fuse_unk, model.boolean("fuse_unk", false));
  BOLIDE_TRY(bpe.ignore_merges, model.boolean("ignore_merges", false));
  return bpe;
}

Result<token_model::Unigram> parse_unigram(const JsonObject& model, std::vector<VocabEntry>& vocab) {
  token_model::Unigram unigram;
  BOLIDE_TRY(const json* pieces, model.array("vocab"));
  unigram.scores.reserve(pieces->size());
  vocab.reserve(pieces->size());
  for (const json& piece : *pieces) {
    const size_t i = vocab.size();
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number())
      return error(Code::kInvalid, fmt::format("{}[{}]: is not a piece and its score", model.at("vocab"), i));
    const double score = piece[1].get<double>();
    if (!std::isfinite(score))
      return error(Code::kInvalid, fmt::format("{}[{}]: the score is not finite", model.at("vocab"), i));
    vocab.push_back({piece[0].get<std::string>(), static_cast<int32_t>(i)});
    unigram.scores.push_back(score);
  }
  if (model.find("unk_id") != nullptr) {
    BOLIDE_TRY(const int64_t id, model.integer("unk_id"));
    if (id < 0 || id >= static_cast<int64_t>(vocab.size()))
      return error(Code::kInvalid,
                   fmt::format("{}: {} is not one of the {} pieces", model.at("unk_id"), id, vocab.size()));
    unigram.unk_id = static_cast<int32_t>(id);
  }
  BOLIDE_TRY(unigram.byte_fallback, model.boolean("byte_fallback", false));
  return unigram;
}

// Files from before 2020 have no "type".
Result<std::string> model_type(const JsonObject& model) {
  BOLIDE_TRY(const std::optional<std::string> type, model.optional_string("type"));
  if (type.has_value()) return *type;
  if (model.find("merges") != nullptr) return std::string("BPE");
  if (const json* vocab = model.find("vocab"); vocab != nullptr && vocab->is_array()) return std::string("Unigram");
  if (model.find("continuing_subword_prefix") != nullptr) return std::string("WordPiece");
  return std::string("WordLevel");
}

Result<> parse_model(const JsonObject& root, TokenizerSpec& spec) {
  BOLIDE_TRY(const JsonObject model, root.object("model"));
  BOLIDE_TRY(const std::string type, model_type(model));
  if (type == "Unigram") {
    BOLIDE_TRY(spec.model, parse_unigram(model, spec.vocab));
    return {};
  }
  if (type != "BPE" && type != "WordPiece" && type != "WordLevel")
    return error(Code::kUnsupported,
                 fmt::format("{}: a model of type \"{}\" is not supported", model.at("type"), type));
  BOLIDE_TRY(spec.vocab, parse_vocab_map(model));
  if (type == "BPE") {
    BOLIDE_TRY(spec.model, parse_bpe(model));
    return {};
  }
  BOLIDE_TRY(std::optional<std::string> unk, model.optional_string("unk_token"));
  if (type == "WordLevel") {
    spec.model = token_model::WordLevel{std::move(unk).value_or("<unk>")};
    return {};
  }
  BOLIDE_TRY(std::optional<std::string> prefix, model.optional_string("continuing_subword_prefix"));
  BOLIDE_TRY(const int64_t chars_max, model.integer("max_input_chars_per_word", 100));
  spec.model = token_model::WordPiece{std::move(unk).value_or("[UNK]"), std::move(prefix).value_or("##"), chars_max};
  return {};
}

Result<AddedToken> parse_added_token(const JsonObject& object) {
  AddedToken token;
  BOLIDE_TRY(token.content, object.string("content"));
  BOLIDE_TRY(token.special, object.boolean("special", false));
  BOLIDE_TRY(token.single_word, object.boolean("single_word", false));
  BOLIDE_TRY(token.lstrip, object.boolean("lstrip", false));
  BOLIDE_TRY(token.rstrip, object.boolean("rstrip", false));
  BOLIDE_TRY(token.normalized, object.boolean("normalized", !token.special));
  return token;
}

// A token of tokenizer_config.json is a string or an object with "content".
Result<std::optional<std::string>> config_token(const JsonObject& config, std::string_view key) {
  const json* value = config.find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) return std::optional<std::string>(value->get<std::string>());
  BOLIDE_TRY(const JsonObject object, JsonObject::of(*value, config.at(key)));
  return object.optional_string("content");
}

Result<std::optional<bool>> config_flag(const JsonObject& config, std::string_view key) {
  if (config.find(key) == nullptr) return std::optional<bool>();
  BOLIDE_TRY(const bool value, config.boolean(key));
  return std::optional<bool>(value);
}

Result<std::vector<NamedTemplate>> parse_chat_templates(const JsonObject& config) {
  std::vector<NamedTemplate> result;
  const json* value = config.find("chat_template");
  if (value == nullptr) return result;
  if (value->is_string()) {
    result.push_back({"default", value->get<std::string>()});
    return result;
  }
  BOLIDE_TRY(const json* list, config.array("chat_template"));
  for (size_t i = 0; i < list->size(); ++i) {
    BOLIDE_TRY(const JsonObject entry,
               JsonObject::of((*list)[i], fmt::format("{}[{}]", config.at("chat_template"), i)));
    NamedTemplate named;
    BOLIDE_TRY(named.name, entry.string("name"));
    BOLIDE_TRY(named.text, entry.string("template"));
    result.push_back(std::move(named));
  }
  return result;
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text) {
  BOLIDE_TRY(const json document, parse_json(text, kJsonBytesMax));
  BOLIDE_TRY(const JsonObject root, JsonObject::of(document, ""));
  TokenizerSpec spec;
  BOLIDE_TRY(parse_model(root, spec));
  if (const json* value = root.find("normalizer"))
    BOLIDE_TRY(parse_normalizer(*value, "normalizer", 0, spec.normalizers));
  if (const json* value = root.find("pre_tokenizer"))
    BOLIDE_TRY(parse_pretokenizer(*value, "pre_tokenizer", 0, spec.pretokenizers));
  if (const json* value = root.find("post_processor"))
    BOLIDE_TRY(parse_postprocessor(*value, "post_processor", 0, spec.postprocessors));
  if (const json* value = root.find("decoder")) BOLIDE_TRY(parse_decoder(*value, "decoder", 0, spec.decoders));
  if (root.find("added_tokens") != nullptr) {
    BOLIDE_TRY(const json* tokens, root.array("added_tokens"));
    for (size_t i = 0; i < tokens->size(); ++i) {
      BOLIDE_TRY(const JsonObject object, JsonObject::of((*tokens)[i], fmt::format("added_tokens[{}]", i)));
      BOLIDE_TRY(AddedToken token, parse_added_token(object));
      BOLIDE_TRY(const int64_t id, object.integer("id"));
      BOLIDE_TRY(token.id, checked_id(id, spec.vocab.size() + tokens->size(), object.at("id")));
      spec.added_tokens.push_back(std::move(token));
    }
  }
  return spec;
}

Result<> apply_tokenizer_config(TokenizerSpec& spec, std::string_view text) {
  BOLIDE_TRY(const json document, parse_json(text, kJsonBytesMax));
  BOLIDE_TRY(const JsonObject config, JsonObject::of(document, ""));
  if (config.find("added_tokens_decoder") != nullptr) {
    BOLIDE_TRY(const JsonObject tokens, config.object("added_tokens_decoder"));
    std::unordered_set<std::string> known;
    for (const AddedToken& token : spec.added_tokens) known.insert(token.content);
    std::vector<AddedToken> added;
    for (const auto& [key, value] : tokens.json().items()) {
      BOLIDE_TRY(const JsonObject object, JsonObject::of(value, tokens.at(key)));
      BOLIDE_TRY(AddedToken token, parse_added_token(object));
      if (key.empty() || key.size() > 9 ||
          !std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }))
        return error(Code::kInvalid, fmt::format("{}: is not a token id", tokens.at(key)));
      BOLIDE_TRY(token.id, checked_id(std::stol(key), spec.vocab.size() + tokens.json().size(), tokens.at(key)));
      if (known.insert(token.content).second) added.push_back(std::move(token));
    }
    std::sort(added.begin(), added.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    std::move(added.begin(), added.end(), std::back_inserter(spec.added_tokens));
  }
  BOLIDE_TRY(std::optional<std::string> bos, config_token(config, "bos_token"));
  BOLIDE_TRY(std::optional<std::string> eos, config_token(config, "eos_token"));
  if (bos.has_value()) spec.bos_token = std::move(bos);
  if (eos.has_value()) spec.eos_token = std::move(eos);
  BOLIDE_TRY(const std::optional<bool> add_bos, config_flag(config, "add_bos_token"));
  BOLIDE_TRY(const std::optional<bool> add_eos, config_flag(config, "add_eos_token"));
  if (add_bos.has_value()) spec.add_bos = add_bos;
  if (add_eos.has_value()) spec.add_eos = add_eos;
  // Only tokenizer.model gives ids: what its reader put around the text is then the configuration's to decide.
  if (spec.bos_id.has_value() && (add_bos.has_value() || add_eos.has_value())) {
    PostProcessor around;
    if (spec.add_bos.value_or(false)) around.push_back({false, {*spec.bos_id}});
    around.push_back({true, {}});
    if (spec.add_eos.value_or(false) && spec.eos_id.has_value()) around.push_back({false, {*spec.eos_id}});
    spec.postprocessors = {std::move(around)};
  }
  BOLIDE_TRY(std::vector<NamedTemplate> templates, parse_chat_templates(config));
  if (!templates.empty()) spec.chat_templates = std::move(templates);
  return {};
}

}  // namespace bolide
