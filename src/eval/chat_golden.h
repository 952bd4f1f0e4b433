// Renders the chats of a tokenizer's golden.json with the tokenizer's own template.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace bolide {

using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

// bos_token, eos_token and so on as tokenizer_config.json names them, as texts or as objects with `content`.
SpecialTokens special_tokens_of(const nlohmann::ordered_json& tokenizer_config);

// `chat`: messages, add_generation_prompt, perhaps tools and kwargs. Keys keep their order: templates print them.
// Errors: those of the template, with its own message.
Result<std::string> render_golden_chat(std::string_view chat_template, const nlohmann::ordered_json& chat,
                                       const SpecialTokens& special_tokens);

}  // namespace bolide
