#include "eval/chat_golden.h"

#include "text/chat_template.h"

namespace bolide {

using Json = nlohmann::ordered_json;

SpecialTokens special_tokens_of(const Json& tokenizer_config) {
  SpecialTokens tokens;
  if (!tokenizer_config.is_object()) return tokens;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = tokenizer_config.find(name);
    if (found == tokenizer_config.end()) continue;
    const Json& value = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
    if (value.is_string()) tokens.emplace_back(name, value.get<std::string>());
  }
  return tokens;
}

Result<std::string> render_golden_chat(std::string_view chat_template, const Json& chat,
                                       const SpecialTokens& special_tokens) {
  if (!chat.is_object() || !chat.contains("messages") || !chat["messages"].is_array())
    return error(Code::kInvalid, "a chat without messages");
  BOLIDE_TRY(const ChatTemplate parsed, ChatTemplate::parse(std::string(chat_template), "chat_template"));
  ChatInput input;
  input.messages = chat["messages"];
  if (const auto prompt = chat.find("add_generation_prompt"); prompt != chat.end() && prompt->is_boolean())
    input.add_generation_prompt = prompt->get<bool>();
  if (const auto tools = chat.find("tools"); tools != chat.end()) input.tools = *tools;
  if (const auto variables = chat.find("kwargs"); variables != chat.end()) input.variables = *variables;
  input.special_tokens = special_tokens;
  return parsed.render(input);
}

}  // namespace bolide
