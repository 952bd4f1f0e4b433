#include "app/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/file.h"
#include "base/utf8.h"

namespace bolide {

void Conversation::add(std::string role, std::string content) {
  messages_.push_back({{"role", std::move(role)}, {"content", std::move(content)}});
}

Result<std::string> Conversation::render() const {
  if (!template_.has_value()) {
    std::string text;
    for (const auto& message : messages_) text += message["content"].get<std::string>();
    return text;
  }
  ChatInput input;
  input.messages = messages_;
  input.add_generation_prompt = true;
  if (const auto id = tokenizer_.bos_id()) input.special_tokens.emplace_back("bos_token", tokenizer_.token_text(*id));
  if (const auto id = tokenizer_.eos_id()) input.special_tokens.emplace_back("eos_token", tokenizer_.token_text(*id));
  input.variables = variables_;
  return template_->render(input);
}

// A template writes its special tokens itself; plain text gets those of the tokenizer's post-processor.
Result<std::vector<int32_t>> Conversation::encode_all() const {
  BOLIDE_TRY(const std::string text, render());
  return tokenizer_.encode(text, {.add_special = !template_.has_value(), .parse_special = true}).context("prompt");
}

Result<std::vector<int32_t>> Conversation::encode(int32_t tokens_max, int* dropped) {
  *dropped = 0;
  while (true) {
    BOLIDE_TRY(std::vector<int32_t> ids, encode_all());
    if (static_cast<int64_t>(ids.size()) <= tokens_max) return ids;
    size_t oldest = 0;
    while (oldest < messages_.size() && messages_[oldest]["role"] == "system") ++oldest;
    if (oldest + 1 >= messages_.size()) return ids;  // the generator says that the prompt is too long
    // A turn is a user's message and the answer to it: dropping both keeps roles alternating.
    do {
      messages_.erase(oldest);
      ++*dropped;
    } while (oldest + 1 < messages_.size() && messages_[oldest]["role"] != "user");
  }
}

Result<std::optional<ChatTemplate>> choose_template(const std::string& model_template, const std::string& model_file,
                                                    const std::string& file, bool raw) {
  if (raw) return std::optional<ChatTemplate>();
  if (!file.empty()) {
    BOLIDE_TRY(std::string source, read_file(file, 4u << 20));
    if (source.find_first_not_of(" \t\r\n") == std::string::npos)
      return error(Code::kInvalid, fmt::format("{}: is empty, expected a chat template in Jinja", file));
    if (const size_t at = utf8_invalid_at(source); at != kUtf8Valid || source.find('\0') != std::string::npos)
      return error(Code::kInvalid, fmt::format("{}: is no text, expected a chat template in Jinja", file));
    BOLIDE_TRY(ChatTemplate parsed, ChatTemplate::parse(std::move(source), file));
    return std::optional(std::move(parsed));
  }
  if (model_template.empty()) return std::optional<ChatTemplate>();
  BOLIDE_TRY(ChatTemplate parsed, ChatTemplate::parse(model_template, model_file + ": chat template"));
  return std::optional(std::move(parsed));
}

Result<nlohmann::ordered_json> template_variables(const std::vector<std::string>& flags) {
  auto variables = nlohmann::ordered_json::object();
  for (const std::string& flag : flags) {
    const size_t equals = flag.find('=');
    if (equals == std::string::npos || equals == 0)
      return error(Code::kInvalid, fmt::format("--template-arg {}: expected KEY=VALUE", flag));
    const std::string name = flag.substr(0, equals), value = flag.substr(equals + 1);
    constexpr std::string_view kReserved[] = {"messages", "add_generation_prompt", "bos_token", "eos_token"};
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved))
      return error(
          Code::kInvalid,
          fmt::format("--template-arg {}: the conversation and the model set this variable; choose another", name));
    auto parsed = nlohmann::ordered_json::parse(value, nullptr, /*allow_exceptions=*/false);
    variables[name] = parsed.is_discarded() ? nlohmann::ordered_json(value) : std::move(parsed);
  }
  return variables;
}

}  // namespace bolide
