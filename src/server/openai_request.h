// Bodies of OpenAI's routes, and of the fields that vLLM added to them, as typed values.
//
// Fields that Bolide does not have are refused by name: what is ignored cannot be relied on. Fields that only describe
// the caller (user, metadata, ...) are taken and not looked at.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "server/wishes.h"

namespace bolide::server {

struct ChatRequest {
  std::string model;                // empty: not said
  nlohmann::ordered_json messages;  // an array of objects with a role; content is text, null or a list of text parts
  nlohmann::ordered_json tools;     // an array, or null
  bool tools_off = false;           // tool_choice "none"
  nlohmann::ordered_json template_variables;  // an object, or null
  bool add_generation_prompt = true;
  Wishes wishes;
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;
struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;  // at least one
  bool echo = false;
  Wishes wishes;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, nlohmann::ordered_json> input;  // a text, or messages
  bool add_special_tokens = true;
  bool add_generation_prompt = true;
};
struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

// Errors: kInvalid (types, ranges, missing fields), kUnsupported (fields and values that Bolide does not have). The
// text names the field; `param` becomes its name, for OpenAI's error bodies.
Result<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits, std::string* param);
Result<CompletionRequest> parse_completion_request(std::string_view body, const RequestLimits& limits,
                                                   std::string* param);
Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestLimits& limits, std::string* param);
Result<DetokenizeRequest> parse_detokenize_request(std::string_view body, const RequestLimits& limits,
                                                   std::string* param);

// For other dialects: the fields above of how to go on, which the caller has found to be among those that there are.
Result<Wishes> parse_wishes(const nlohmann::ordered_json& fields, const RequestLimits& limits, std::string* param);

}  // namespace bolide::server
