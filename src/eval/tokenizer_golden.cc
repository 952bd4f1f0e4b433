#include "eval/tokenizer_golden.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "eval/chat_golden.h"
#include "formats/json_object.h"
#include "formats/tokenizer_json.h"
#include "formats/xz.h"
#include "text/detokenizer.h"

namespace bolide {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = size_t{256} << 20;
constexpr size_t kShownBytes = 80;

std::string shown(std::string_view text) {
  const std::string quoted =
      json(std::string(text.substr(0, kShownBytes))).dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > kShownBytes ? quoted + "..." : quoted;
}

// Collects checks by name.
class Checks {
 public:
  void compare(std::string_view check, bool equal, const std::function<std::string()>& describe) {
    TokenizerCheck& c = by_name(check);
    ++c.count;
    if (equal) return;
    if (c.got++ == 0) c.first_difference = describe();
  }
  std::vector<TokenizerCheck> take() { return std::move(checks_); }

 private:
  TokenizerCheck& by_name(std::string_view name) {
    for (TokenizerCheck& c : checks_) {
      if (c.check == name) return c;
    }
    checks_.push_back({.check = std::string(name)});
    return checks_.back();
  }
  std::vector<TokenizerCheck> checks_;
};

Result<std::vector<int32_t>> parse_ids(const JsonObject& object, std::string_view key) {
  BOLIDE_TRY(const json* values, object.array(key));
  std::vector<int32_t> ids;
  for (const json& value : *values) {
    if (!value.is_number_integer())
      return error(Code::kInvalid, fmt::format("{}: is not a list of ids", object.at(key)));
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

std::string join(const std::vector<int32_t>& ids) {
  return fmt::format(
      "[{}]", fmt::join(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min<size_t>(ids.size(), 40)), " "));
}

void check_encode(Checks& checks, std::string_view name, const Tokenizer& tokenizer, std::string_view text,
                  bool special, const std::vector<int32_t>& want) {
  const Result<std::vector<int32_t>> got = tokenizer.encode(text, {.add_special = special});
  checks.compare(name, got.has_value() && *got == want, [&] {
    return fmt::format("{}: {} where {} is wanted", shown(text), got ? join(*got) : got.error().text, join(want));
  });
}

void check_decode(Checks& checks, std::string_view prefix, const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                  bool skip_special, const std::string& want) {
  const std::string got = tokenizer.decode(ids, skip_special);
  const std::string name = fmt::format("{}{}", prefix, skip_special ? "decoded_skip" : "decoded");
  checks.compare(name, got == want,
                 [&] { return fmt::format("{}: {} where {} is wanted", join(ids), shown(got), shown(want)); });
  Detokenizer stream(tokenizer, skip_special);
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.push(id);
  streamed += stream.flush();
  checks.compare(std::string(prefix) + "incremental", streamed == want,
                 [&] { return fmt::format("{}: {} where {} is wanted", join(ids), shown(streamed), shown(want)); });
}

Result<> check_decodes(Checks& checks, std::string_view prefix, const Tokenizer& tokenizer, const JsonObject& entry,
                       std::string_view keys, const std::vector<int32_t>& ids) {
  BOLIDE_TRY(const std::string decoded, entry.string(fmt::format("{}decoded", keys)));
  BOLIDE_TRY(const std::string skipped, entry.string(fmt::format("{}decoded_skip", keys)));
  check_decode(checks, prefix, tokenizer, ids, false, decoded);
  check_decode(checks, prefix, tokenizer, ids, true, skipped);
  return {};
}

Result<> check_texts(Checks& checks, std::string_view prefix, const Tokenizer& tokenizer, const JsonObject& golden) {
  BOLIDE_TRY(const json* texts, golden.array("texts"));
  for (size_t i = 0; i < texts->size(); ++i) {
    BOLIDE_TRY(const JsonObject entry, JsonObject::of((*texts)[i], fmt::format("{}[{}]", golden.at("texts"), i)));
    BOLIDE_TRY(const std::string text, entry.string("text"));
    if (entry.find("error") != nullptr) {
      checks.compare(std::string(prefix) + "refused", !tokenizer.encode(text).has_value(),
                     [&] { return fmt::format("{}: is not refused", shown(text)); });
      continue;
    }
    BOLIDE_TRY(const std::vector<int32_t> ids, parse_ids(entry, "ids"));
    check_encode(checks, std::string(prefix) + "ids", tokenizer, text, false, ids);
    BOLIDE_TRY(check_decodes(checks, prefix, tokenizer, entry, "", ids));
    if (entry.find("ids_special") == nullptr) {
      check_encode(checks, std::string(prefix) + "ids_special", tokenizer, text, true, ids);
      continue;
    }
    BOLIDE_TRY(const std::vector<int32_t> special, parse_ids(entry, "ids_special"));
    check_encode(checks, std::string(prefix) + "ids_special", tokenizer, text, true, special);
    BOLIDE_TRY(check_decodes(checks, prefix, tokenizer, entry, "special_", special));
  }
  return {};
}

Result<> check_id_lists(Checks& checks, const Tokenizer& tokenizer, const JsonObject& golden) {
  BOLIDE_TRY(const json* lists, golden.array("id_lists"));
  for (size_t i = 0; i < lists->size(); ++i) {
    BOLIDE_TRY(const JsonObject entry, JsonObject::of((*lists)[i], fmt::format("{}[{}]", golden.at("id_lists"), i)));
    BOLIDE_TRY(const std::vector<int32_t> ids, parse_ids(entry, "ids"));
    BOLIDE_TRY(check_decodes(checks, "id_lists.", tokenizer, entry, "", ids));
  }
  return {};
}

// The template an entry uses: the default one, or "tool_use" where the list has it and the entry brings tools.
std::string_view pick_template(const Tokenizer& tokenizer, const JsonObject& entry) {
  std::string_view text;
  for (const NamedTemplate& named : tokenizer.chat_templates()) {
    if (named.name == "default" || text.empty()) text = named.text;
  }
  for (const NamedTemplate& named : tokenizer.chat_templates()) {
    if (named.name == "tool_use" && entry.find("tools") != nullptr) text = named.text;
  }
  return text;
}

// `chats`: the same list with its keys in the file's order.
Result<> check_chats(Checks& checks, const Tokenizer& tokenizer, const JsonObject& golden,
                     const nlohmann::ordered_json& chats, const SpecialTokens& special_tokens) {
  BOLIDE_TRY(const json* list, golden.array("chat"));
  for (size_t i = 0; i < list->size(); ++i) {
    BOLIDE_TRY(const JsonObject entry, JsonObject::of((*list)[i], fmt::format("{}[{}]", golden.at("chat"), i)));
    BOLIDE_TRY(const std::optional<std::string> refusal, entry.optional_string("error"));
    const Result<std::string> rendered = render_golden_chat(pick_template(tokenizer, entry), chats[i], special_tokens);
    if (refusal.has_value()) {
      checks.compare("chat.error", !rendered.has_value() && rendered.error().text == *refusal, [&] {
        return fmt::format("{}: {} where \"{}\" is wanted", entry.path(),
                           rendered ? shown(*rendered) : rendered.error().text, *refusal);
      });
      continue;
    }
    BOLIDE_TRY(const std::string text, entry.string("text"));
    checks.compare("chat.text", rendered.has_value() && *rendered == text, [&] {
      return fmt::format("{}: {} where {} is wanted", entry.path(), rendered ? shown(*rendered) : rendered.error().text,
                         shown(text));
    });
    BOLIDE_TRY(const std::vector<int32_t> ids, parse_ids(entry, "ids"));
    check_encode(checks, "chat.ids", tokenizer, text, false, ids);
  }
  return {};
}

// A model folder's "text": the prompt with special tokens, and the answer without.
Result<> check_model_text(Checks& checks, const Tokenizer& tokenizer, const JsonObject& golden) {
  BOLIDE_TRY(const JsonObject entry, golden.object("text"));
  BOLIDE_TRY(const std::string text, entry.string("text"));
  BOLIDE_TRY(const std::vector<int32_t> ids, parse_ids(entry, "ids"));
  check_encode(checks, "ids_special", tokenizer, text, true, ids);
  BOLIDE_TRY(const std::vector<int32_t> greedy, parse_ids(entry, "greedy"));
  BOLIDE_TRY(const std::string greedy_text, entry.string("greedy_text"));
  check_decode(checks, "greedy.", tokenizer, greedy, true, greedy_text);
  return {};
}

}  // namespace

Result<std::vector<TokenizerCheck>> check_tokenizer_cases(std::string_view golden_text, const Tokenizer& plain,
                                                          const Tokenizer& configured, std::string_view config) {
  BOLIDE_TRY(const json golden_json, parse_json(golden_text, kFileBytesMax));
  BOLIDE_TRY(const JsonObject golden, JsonObject::of(golden_json, ""));
  Checks checks;
  if (golden.find("texts") != nullptr) BOLIDE_TRY(check_texts(checks, "", plain, golden));
  if (golden.find("id_lists") != nullptr) BOLIDE_TRY(check_id_lists(checks, plain, golden));
  if (golden.find("with_config_tokens") != nullptr) {
    BOLIDE_TRY(const JsonObject with_config, golden.object("with_config_tokens"));
    BOLIDE_TRY(check_texts(checks, "with_config_tokens.", configured, with_config));
  }
  if (golden.find("chat") != nullptr) {
    const auto ordered = nlohmann::ordered_json::parse(golden_text, nullptr, false);  // was parsed above
    const SpecialTokens special_tokens = special_tokens_of(nlohmann::ordered_json::parse(config, nullptr, false));
    BOLIDE_TRY(check_chats(checks, configured, golden, ordered["chat"], special_tokens));
  }
  if (golden.find("text") != nullptr) BOLIDE_TRY(check_model_text(checks, configured, golden));
  std::vector<TokenizerCheck> result = checks.take();
  if (result.empty()) return error(Code::kInvalid, "has nothing that a tokenizer could be checked against");
  return result;
}

Result<std::vector<TokenizerCheck>> check_tokenizer_golden(const std::filesystem::path& folder) {
  BOLIDE_TRY(const std::string golden_text, read_file_or_xz(folder / "golden.json", kFileBytesMax));
  BOLIDE_TRY(const std::string spec_text, read_file_or_xz(folder / "tokenizer.json", kFileBytesMax));
  const std::string spec_name = (folder / "tokenizer.json").string();
  BOLIDE_TRY(TokenizerSpec spec, parse_tokenizer_json(spec_text).context(spec_name));
  BOLIDE_TRY(const Tokenizer plain, Tokenizer::create(spec).context(spec_name));
  Tokenizer configured = plain;
  std::string config;
  std::error_code ignored;
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path, ignored)) {
    BOLIDE_TRY(config, read_file_or_xz(path, kFileBytesMax));
    BOLIDE_TRY(apply_tokenizer_config(spec, config).context(path.string()));
    BOLIDE_TRY(configured, Tokenizer::create(std::move(spec)).context(path.string()));
  }
  return check_tokenizer_cases(golden_text, plain, configured, config).context((folder / "golden.json").string());
}

}  // namespace bolide
