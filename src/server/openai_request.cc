#include "server/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <span>

#include "server/json_body.h"

namespace bolide::server {
namespace {

using Json = nlohmann::ordered_json;

// The body of one request: reads fields, and remembers which was at fault.
class Body {
 public:
  Body(const Json& json, std::string* param) : json_(json), param_(param) {}

  // Null if it is absent or null.
  const Json* find(std::string_view key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  Error wrong(std::string_view key, std::string_view what, Code code = Code::kInvalid) const {
    *param_ = key;
    return error(code, fmt::format("{}: {}", key, what));
  }

  Result<std::string> text(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) return wrong(key, "is required");
    if (!value->is_string()) return wrong(key, "must be a string");
    return value->get<std::string>();
  }
  // Empty if it is absent: which model is meant may be clear.
  Result<std::string> model() const {
    if (find("model") == nullptr) return std::string();
    return text("model");
  }
  Result<bool> boolean(std::string_view key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) return wrong(key, "must be true or false");
    return value->get<bool>();
  }
  // Numbers that are written as 5.0 are whole, too.
  Result<std::optional<int64_t>> integer(std::string_view key, int64_t min, int64_t max) const {
    const Json* value = find(key);
    if (value == nullptr) return std::optional<int64_t>();
    const auto number = whole(*value);
    if (!number || *number < min || *number > max)
      return wrong(key, fmt::format("must be a whole number from {} to {}", min, max));
    return number;
  }
  Result<std::optional<float>> number(std::string_view key, double min, double max) const {
    const Json* value = find(key);
    if (value == nullptr) return std::optional<float>();
    if (!value->is_number()) return wrong(key, "must be a number");
    const double number = value->get<double>();
    if (!(number >= min && number <= max)) return wrong(key, fmt::format("must be from {} to {}", min, max));
    return std::optional<float>(static_cast<float>(number));
  }
  Result<std::vector<int32_t>> ids(std::string_view key, size_t count_max) const {
    std::vector<int32_t> ids;
    const Json* value = find(key);
    if (value == nullptr) return ids;
    if (!value->is_array()) return wrong(key, "must be an array of token ids");
    if (value->size() > count_max) return wrong(key, fmt::format("has {} ids, at most {}", value->size(), count_max));
    for (const Json& item : *value) {
      const auto id = whole(item);
      if (!id || *id < 0 || *id > INT32_MAX) return wrong(key, "must be an array of token ids");
      ids.push_back(static_cast<int32_t>(*id));
    }
    return ids;
  }
  // Refuses fields that are in neither list.
  Result<> only(std::span<const std::string_view> known, std::span<const std::string_view> also) const {
    for (const auto& item : json_.items()) {
      const std::string& key = item.key();
      const auto has = [&](std::span<const std::string_view> names) {
        return std::find(names.begin(), names.end(), key) != names.end();
      };
      if (item.value().is_null() || has(known) || has(also)) continue;
      return wrong(std::string_view(key).substr(0, 64), "this server does not have it; leave it out",
                   Code::kUnsupported);
    }
    return {};
  }

  static std::optional<int64_t> whole(const Json& value) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    if (value.is_number_integer()) return value.get<int64_t>();
    if (!value.is_number_float()) return std::nullopt;
    const double number = value.get<double>();
    if (number != std::floor(number) || std::abs(number) > 9e15) return std::nullopt;
    return static_cast<int64_t>(number);
  }

 private:
  const Json& json_;
  std::string* param_;
};

// Fields of every generating route. Those in the last line describe the caller; nothing depends on them.
constexpr std::string_view kCommon[] = {"model",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "repetition_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "seed",
                                        "max_tokens",
                                        "min_tokens",
                                        "n",
                                        "stop",
                                        "stop_token_ids",
                                        "ignore_eos",
                                        "logprobs",
                                        "logit_bias",
                                        "priority",
                                        "stream",
                                        "stream_options",
                                        "user",
                                        "metadata",
                                        "prompt_cache_key",
                                        "safety_identifier"};

Result<std::vector<std::string>> read_stops(const Body& body, const RequestLimits& limits) {
  std::vector<std::string> stops;
  const Json* value = body.find("stop");
  if (value == nullptr) return stops;
  if (value->is_string()) {
    stops.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    if (value->size() > limits.stops_max)
      return body.wrong("stop", fmt::format("has {} strings, at most {}", value->size(), limits.stops_max));
    for (const Json& item : *value) {
      if (!item.is_string()) return body.wrong("stop", "must be a string or an array of strings");
      stops.push_back(item.get<std::string>());
    }
  } else {
    return body.wrong("stop", "must be a string or an array of strings");
  }
  for (const std::string& stop : stops)
    if (stop.size() > limits.stop_bytes_max)
      return body.wrong("stop", fmt::format("a string has {} bytes, at most {}", stop.size(), limits.stop_bytes_max));
  std::erase(stops, "");
  return stops;
}

Result<std::vector<TokenBias>> read_logit_bias(const Body& body, const RequestLimits& limits) {
  std::vector<TokenBias> biases;
  const Json* value = body.find("logit_bias");
  if (value == nullptr) return biases;
  if (!value->is_object()) return body.wrong("logit_bias", "must be an object of token ids and numbers");
  if (value->size() > limits.logit_biases_max)
    return body.wrong("logit_bias", fmt::format("has {} tokens, at most {}", value->size(), limits.logit_biases_max));
  for (const auto& item : value->items()) {
    int64_t id = -1;
    const std::string& key = item.key();
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault != std::errc() || end != key.data() + key.size() || id < 0 || id > INT32_MAX)
      return body.wrong("logit_bias", "its keys must be token ids");
    const double bias = item.value().is_number() ? item.value().get<double>() : NAN;
    if (!(bias >= -100 && bias <= 100)) return body.wrong("logit_bias", "its values must be from -100 to 100");
    biases.push_back({static_cast<int32_t>(id), static_cast<float>(bias)});
  }
  return biases;
}

// What all generating routes share. `logprobs` differs between them. `tokens_least`: of max_tokens.
Result<Wishes> read_wishes(const Body& body, const RequestLimits& limits, int64_t tokens_least = 1) {
  Wishes w;
  BOLIDE_TRY(w.sampling.temperature, body.number("temperature", 0, 100));
  BOLIDE_TRY(w.sampling.top_p, body.number("top_p", 0, 1));
  BOLIDE_TRY(w.sampling.min_p, body.number("min_p", 0, 1));
  BOLIDE_TRY(const std::optional<int64_t> top_k, body.integer("top_k", -1, INT32_MAX));
  if (top_k) w.sampling.top_k = static_cast<int32_t>(std::max<int64_t>(*top_k, 0));  // -1: off, as vLLM has it
  BOLIDE_TRY(w.sampling.repetition_penalty, body.number("repetition_penalty", 0.01, 100));
  BOLIDE_TRY(w.sampling.presence_penalty, body.number("presence_penalty", -2, 2));
  BOLIDE_TRY(w.sampling.frequency_penalty, body.number("frequency_penalty", -2, 2));
  BOLIDE_TRY(const std::optional<int64_t> seed, body.integer("seed", INT64_MIN, INT64_MAX));
  if (seed) w.seed = static_cast<uint64_t>(*seed);
  BOLIDE_TRY(const std::optional<int64_t> tokens_max, body.integer("max_tokens", tokens_least, INT32_MAX));
  if (tokens_max) w.tokens_max = static_cast<int32_t>(*tokens_max);
  BOLIDE_TRY(const std::optional<int64_t> tokens_min, body.integer("min_tokens", 0, INT32_MAX));
  w.tokens_min = static_cast<int32_t>(tokens_min.value_or(0));
  BOLIDE_TRY(const std::optional<int64_t> choices, body.integer("n", 1, limits.choices_max));
  w.choices = static_cast<int32_t>(choices.value_or(1));
  BOLIDE_TRY(w.stops, read_stops(body, limits));
  BOLIDE_TRY(w.stop_ids, body.ids("stop_token_ids", limits.stop_ids_max));
  BOLIDE_TRY(w.ignore_eos, body.boolean("ignore_eos", false));
  BOLIDE_TRY(w.logit_bias, read_logit_bias(body, limits));
  BOLIDE_TRY(const std::optional<int64_t> priority, body.integer("priority", -1000, 1000));
  w.priority = static_cast<int32_t>(priority.value_or(0));
  BOLIDE_TRY(w.stream, body.boolean("stream", false));
  if (const Json* options = body.find("stream_options")) {
    if (!w.stream) return body.wrong("stream_options", "is for streams; set stream");
    if (!options->is_object()) return body.wrong("stream_options", "must be an object");
    for (const auto& item : options->items()) {
      if (item.key() != "include_usage" || !item.value().is_boolean())
        return body.wrong("stream_options", "may have include_usage, true or false, and nothing else",
                          Code::kUnsupported);
      w.include_usage = item.value().get<bool>();
    }
  }
  return w;
}

// Calls of an assistant's message that come back: {function: {name, arguments}}, arguments text or an object.
Result<> check_calls(const Body& body, const Json& calls, const std::string& at) {
  if (!calls.is_array()) return body.wrong(at, "must be an array");
  for (const Json& call : calls) {
    const Json* function = call.is_object() && call.contains("function") ? &call["function"] : nullptr;
    if (function == nullptr || !function->is_object() || !function->value("name", Json()).is_string())
      return body.wrong(at, "each must be {type: \"function\", function: {name, arguments}}");
    const auto arguments = function->find("arguments");
    if (arguments != function->end() && !arguments->is_string() && !arguments->is_object() && !arguments->is_null())
      return body.wrong(at, "arguments must be an object, or a string that has one");
  }
  return {};
}

// A message is {role, content, ...}; content text, null, or a list of {type: "text", text}.
Result<> check_message(const Body& body, const Json& message, const std::string& at) {
  if (!message.is_object()) return body.wrong(at, "must be an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return body.wrong(at + ".role", "must be a string");
  const auto calls = message.find("tool_calls");
  const bool has_calls = calls != message.end() && !calls->is_null();
  if (has_calls) {
    BOLIDE_TRY(check_calls(body, *calls, at + ".tool_calls"));
  }
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (has_calls || *role == "assistant") return {};
    return body.wrong(at + ".content", "is required");
  }
  if (content->is_string()) return {};
  if (!content->is_array()) return body.wrong(at + ".content", "must be a string or an array of parts");
  for (const Json& part : *content) {
    if (!part.is_object() || !part.contains("type") || part["type"] != "text")
      return body.wrong(at + ".content", "this server has parts of type text alone", Code::kUnsupported);
    if (!part.contains("text") || !part["text"].is_string())
      return body.wrong(at + ".content", "a part of type text must have a text");
  }
  return {};
}

Result<> check_messages(const Body& body, const Json& messages) {
  if (!messages.is_array() || messages.empty())
    return body.wrong("messages", "must be an array of at least one message");
  for (size_t i = 0; i < messages.size(); ++i)
    BOLIDE_TRY(check_message(body, messages[i], fmt::format("messages[{}]", i)));
  return {};
}

// Parts of text become one text: what templates expect.
void join_parts(Json& messages) {
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    std::string text;
    for (const Json& part : *content) text += part["text"].get<std::string>();
    *content = text;
  }
}

Result<> read_tools(const Body& body, const RequestLimits& limits, ChatRequest& request) {
  if (const Json* tools = body.find("tools")) {
    if (!tools->is_array()) return body.wrong("tools", "must be an array");
    if (tools->size() > limits.tools_max)
      return body.wrong("tools", fmt::format("has {} tools, at most {}", tools->size(), limits.tools_max));
    for (const Json& tool : *tools) {
      const bool function = tool.is_object() && tool.value("type", Json()) == "function" && tool.contains("function") &&
                            tool["function"].is_object() && tool["function"].value("name", Json()).is_string();
      if (!function) return body.wrong("tools", "each must be {type: \"function\", function: {name, ...}}");
    }
    if (!tools->empty()) request.tools = *tools;
  }
  if (const Json* choice = body.find("tool_choice")) {
    if (*choice != "auto" && *choice != "none")
      return body.wrong("tool_choice", "this server has auto and none; it cannot make a model call a tool",
                        Code::kUnsupported);
    request.tools_off = *choice == "none";
  }
  BOLIDE_TRY(const bool parallel, body.boolean("parallel_tool_calls", true));
  if (!parallel && request.tools.is_array())
    return body.wrong("parallel_tool_calls", "this server cannot keep a model from calling several tools",
                      Code::kUnsupported);
  return {};
}

// A field that may have one value, which is what happens anyway.
Result<> only_value(const Body& body, std::string_view key, const Json& value) {
  const Json* given = body.find(key);
  if (given == nullptr || *given == value) return {};
  return body.wrong(key, fmt::format("this server has {} alone", value.dump()), Code::kUnsupported);
}

}  // namespace

Result<Wishes> parse_wishes(const Json& fields, const RequestLimits& limits, std::string* param) {
  return read_wishes(Body(fields, param), limits);
}

Result<ChatRequest> parse_chat_request(std::string_view text, const RequestLimits& limits, std::string* param) {
  BOLIDE_TRY(Json json, parse_json_body(text, limits));
  const Body body(json, param);
  constexpr std::string_view kAlso[] = {"messages",        "max_completion_tokens", "top_logprobs",
                                        "tools",           "tool_choice",           "parallel_tool_calls",
                                        "response_format", "chat_template_kwargs",  "add_generation_prompt",
                                        "store",           "service_tier",          "modalities"};
  BOLIDE_TRY(body.only(kCommon, kAlso));
  ChatRequest request;
  BOLIDE_TRY(request.model, body.model());
  BOLIDE_TRY(request.wishes, read_wishes(body, limits));
  BOLIDE_TRY(const std::optional<int64_t> completion, body.integer("max_completion_tokens", 1, INT32_MAX));
  if (completion) request.wishes.tokens_max = static_cast<int32_t>(*completion);
  BOLIDE_TRY(request.wishes.logprobs, body.boolean("logprobs", false));
  BOLIDE_TRY(const std::optional<int64_t> top, body.integer("top_logprobs", 0, limits.top_logprobs_max));
  if (top && !request.wishes.logprobs) return body.wrong("top_logprobs", "needs logprobs: true");
  request.wishes.top_logprobs = static_cast<int32_t>(top.value_or(0));
  BOLIDE_TRY(read_tools(body, limits, request));
  BOLIDE_TRY(only_value(body, "store", false));
  BOLIDE_TRY(only_value(body, "modalities", Json::array({"text"})));
  BOLIDE_TRY(only_value(body, "response_format", {{"type", "text"}}));
  if (const Json* tier = body.find("service_tier"); tier != nullptr && *tier != "auto" && *tier != "default")
    return body.wrong("service_tier", "this server has auto and default", Code::kUnsupported);
  if (const Json* variables = body.find("chat_template_kwargs")) {
    if (!variables->is_object()) return body.wrong("chat_template_kwargs", "must be an object");
    request.template_variables = *variables;
  }
  BOLIDE_TRY(request.add_generation_prompt, body.boolean("add_generation_prompt", true));
  if (body.find("messages") == nullptr) return body.wrong("messages", "is required");
  BOLIDE_TRY(check_messages(body, *body.find("messages")));
  request.messages = std::move(json["messages"]);
  join_parts(request.messages);
  return request;
}

Result<CompletionRequest> parse_completion_request(std::string_view text, const RequestLimits& limits,
                                                   std::string* param) {
  BOLIDE_TRY(const Json json, parse_json_body(text, limits));
  const Body body(json, param);
  constexpr std::string_view kAlso[] = {"prompt", "echo", "best_of", "suffix"};
  BOLIDE_TRY(body.only(kCommon, kAlso));
  CompletionRequest request;
  BOLIDE_TRY(request.model, body.model());
  BOLIDE_TRY(request.echo, body.boolean("echo", false));
  BOLIDE_TRY(request.wishes, read_wishes(body, limits, request.echo ? 0 : 1));
  BOLIDE_TRY(const std::optional<int64_t> logprobs, body.integer("logprobs", 0, limits.top_logprobs_max));
  request.wishes.logprobs = logprobs.has_value();
  request.wishes.top_logprobs = static_cast<int32_t>(logprobs.value_or(0));
  request.wishes.prompt_logprobs = request.echo && request.wishes.logprobs;
  BOLIDE_TRY(only_value(body, "best_of", request.wishes.choices));
  BOLIDE_TRY(only_value(body, "suffix", ""));
  const Json* prompt = body.find("prompt");
  if (prompt == nullptr) return body.wrong("prompt", "is required");
  const bool is_ids = prompt->is_array() && !prompt->empty() && prompt->front().is_number();
  const auto read_ids = [&](const Json& list) -> Result<std::vector<int32_t>> {
    std::vector<int32_t> ids;
    for (const Json& item : list) {
      const auto id = Body::whole(item);
      if (!id || *id < 0 || *id > INT32_MAX) return body.wrong("prompt", "has an element that is no token id");
      ids.push_back(static_cast<int32_t>(*id));
    }
    return ids;
  };
  const auto read_one = [&](const Json& item) -> Result<Prompt> {
    if (item.is_string()) return Prompt(item.get<std::string>());
    if (!item.is_array()) return body.wrong("prompt", "must be text, token ids, or an array of either");
    BOLIDE_TRY(std::vector<int32_t> ids, read_ids(item));
    return Prompt(std::move(ids));
  };
  if (prompt->is_string() || is_ids) {
    BOLIDE_TRY(Prompt one, read_one(*prompt));
    request.prompts.push_back(std::move(one));
    return request;
  }
  if (!prompt->is_array() || prompt->empty())
    return body.wrong("prompt", "must be text, token ids, or an array of either");
  if (prompt->size() > limits.prompts_max)
    return body.wrong("prompt", fmt::format("has {} prompts, at most {}", prompt->size(), limits.prompts_max));
  for (const Json& item : *prompt) {
    BOLIDE_TRY(Prompt one, read_one(item));
    request.prompts.push_back(std::move(one));
  }
  return request;
}

Result<TokenizeRequest> parse_tokenize_request(std::string_view text, const RequestLimits& limits, std::string* param) {
  BOLIDE_TRY(Json json, parse_json_body(text, limits));
  const Body body(json, param);
  constexpr std::string_view kKnown[] = {"model", "prompt", "messages", "add_special_tokens", "add_generation_prompt"};
  BOLIDE_TRY(body.only(kKnown, {}));
  TokenizeRequest request;
  BOLIDE_TRY(request.model, body.model());
  BOLIDE_TRY(request.add_special_tokens, body.boolean("add_special_tokens", true));
  BOLIDE_TRY(request.add_generation_prompt, body.boolean("add_generation_prompt", true));
  const bool has_messages = body.find("messages") != nullptr;
  if (has_messages == (body.find("prompt") != nullptr)) return body.wrong("prompt", "give a prompt, or messages");
  if (has_messages) {
    BOLIDE_TRY(check_messages(body, *body.find("messages")));
    Json messages = std::move(json["messages"]);
    join_parts(messages);
    request.input = std::move(messages);
    return request;
  }
  BOLIDE_TRY(request.input, body.text("prompt"));
  return request;
}

Result<DetokenizeRequest> parse_detokenize_request(std::string_view text, const RequestLimits& limits,
                                                   std::string* param) {
  BOLIDE_TRY(const Json json, parse_json_body(text, limits));
  const Body body(json, param);
  constexpr std::string_view kKnown[] = {"model", "tokens"};
  BOLIDE_TRY(body.only(kKnown, {}));
  DetokenizeRequest request;
  BOLIDE_TRY(request.model, body.model());
  if (body.find("tokens") == nullptr) return body.wrong("tokens", "is required");
  BOLIDE_TRY(request.tokens, body.ids("tokens", limits.nodes_max));
  return request;
}

}  // namespace bolide::server
