#include "measure/load/dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace bolide::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kErrorTextMax = 200;
constexpr size_t kDepthMax = 64;

enum class Key : uint8_t {
  kOther,
  kItem,  // of an array
  kChoices,
  kDelta,
  kContent,
  kText,
  kTextOutput,
  kFinishReason,
  kUsage,
  kPromptTokens,
  kCompletionTokens,
  kError,
  kMessage,
};

Key key_of(std::string_view name) {
  struct Row {
    std::string_view name;
    Key key;
  };
  static constexpr Row kRows[] = {
      {"choices", Key::kChoices},
      {"delta", Key::kDelta},
      {"content", Key::kContent},
      {"reasoning_content", Key::kContent},
      {"reasoning", Key::kContent},
      {"text", Key::kText},
      {"text_output", Key::kTextOutput},
      {"finish_reason", Key::kFinishReason},
      {"usage", Key::kUsage},
      {"prompt_tokens", Key::kPromptTokens},
      {"completion_tokens", Key::kCompletionTokens},
      {"error", Key::kError},
      {"message", Key::kMessage},
  };
  for (const Row& row : kRows)
    if (row.name == name) return row.key;
  return Key::kOther;
}

// Reads an event without building a tree: one is read for every token.
class EventReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit EventReader(StreamEvent* event) : event_(event) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t number) override { return on_number(number); }
  bool number_unsigned(number_unsigned_t number) override {
    return on_number(static_cast<int64_t>(std::min<uint64_t>(number, INT64_MAX)));
  }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool string(string_t& text) override {
    const bool in_choice = depth_ == 3 && path_[1] == Key::kChoices;
    if ((in_choice && key_ == Key::kText) || (depth_ == 1 && key_ == Key::kTextOutput) ||
        (depth_ == 4 && path_[1] == Key::kChoices && path_[3] == Key::kDelta && key_ == Key::kContent))
      event_->text_bytes += text.size();
    if (in_choice && key_ == Key::kFinishReason) event_->finished = true;
    if (depth_ == 1 && key_ == Key::kError) fail(text);
    if (depth_ == 2 && path_[1] == Key::kError && key_ == Key::kMessage) fail(text);
    return value();
  }
  bool start_object(std::size_t) override {
    if (depth_ == 1 && key_ == Key::kError) event_->failed = true;
    return open(Key::kOther);
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Key::kItem); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    key_ = key_of(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool value() { return depth_ > 0; }  // a bare value is no event
  bool on_number(int64_t number) {
    if (depth_ == 2 && path_[1] == Key::kUsage && key_ == Key::kPromptTokens) event_->prompt_tokens = number;
    if (depth_ == 2 && path_[1] == Key::kUsage && key_ == Key::kCompletionTokens) event_->output_tokens = number;
    return value();
  }
  // path_[i]: the key that the i-th container from outside belongs to.
  bool open(Key inside) {
    if (depth_ == kDepthMax) return false;
    path_[depth_++] = key_;
    key_ = inside;
    return true;
  }
  bool close() {
    key_ = depth_ > 1 && path_[depth_ - 1] == Key::kItem ? Key::kItem : Key::kOther;
    --depth_;
    return true;
  }
  void fail(std::string_view text) {
    event_->failed = true;
    event_->error_text = text.substr(0, kErrorTextMax);
  }

  StreamEvent* event_;
  std::array<Key, kDepthMax> path_{};
  size_t depth_ = 0;
  Key key_ = Key::kOther;
};

void merge(Json& body, std::string_view extra_json) {
  if (extra_json.empty()) return;
  const Json extra = Json::parse(extra_json, nullptr, false);
  if (!extra.is_object()) return;
  for (const auto& [name, value] : extra.items()) {
    // "parameters" is where the KServe dialect keeps its own.
    if (value.is_object() && body.contains(name) && body[name].is_object())
      body[name].update(value);
    else
      body[name] = value;
  }
}

// A path's segment: what is not plain is percent-encoded.
std::string encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

std::string_view to_string(Dialect dialect) {
  switch (dialect) {
    case Dialect::kOpenaiChat: return "openai-chat";
    case Dialect::kOpenai: return "openai";
    case Dialect::kKserve: return "kserve";
  }
  return "?";
}

Result<Dialect> parse_dialect(std::string_view text) {
  for (const Dialect dialect : {Dialect::kOpenaiChat, Dialect::kOpenai, Dialect::kKserve})
    if (text == to_string(dialect)) return dialect;
  return error(Code::kInvalid, fmt::format("dialect \"{}\" is none of openai-chat, openai, kserve", text));
}

std::string route(Dialect dialect, std::string_view model) {
  switch (dialect) {
    case Dialect::kOpenaiChat: return "/v1/chat/completions";
    case Dialect::kOpenai: return "/v1/completions";
    case Dialect::kKserve: return fmt::format("/v2/models/{}/generate_stream", encoded(model));
  }
  return {};
}

std::string request_body(Dialect dialect, const RequestFields& fields) {
  Json body = Json::object();
  if (dialect == Dialect::kKserve) {
    body["text_input"] = fields.prompt;
    Json& parameters = body["parameters"] = {{"max_tokens", fields.output_tokens}, {"stream", true}};
    if (fields.ignore_eos) parameters["ignore_eos"] = true;
  } else {
    body["model"] = fields.model;
    if (dialect == Dialect::kOpenai)
      body["prompt"] = fields.prompt;
    else if (fields.messages_json.empty())
      body["messages"] = Json::array({{{"role", "user"}, {"content", fields.prompt}}});
    else
      body["messages"] = Json::parse(fields.messages_json, nullptr, false);
    body["max_tokens"] = fields.output_tokens;
    body["stream"] = true;
    if (fields.ask_usage) body["stream_options"] = {{"include_usage", true}};
    if (fields.ignore_eos) body["ignore_eos"] = true;
  }
  merge(body, fields.extra_json);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<> check_extra(std::string_view json) {
  if (json.empty() || Json::parse(json, nullptr, false).is_object()) return {};
  return error(Code::kInvalid, "--extra is not a JSON object; for example --extra '{\"temperature\": 0}'");
}

StreamEvent read_event(std::string_view data) {
  StreamEvent event;
  if (data.starts_with("[DONE]")) {
    event.valid = event.end = true;
    return event;
  }
  EventReader reader(&event);
  event.valid = nlohmann::json::sax_parse(data.begin(), data.end(), &reader);
  return event;
}

std::vector<std::string> model_names(std::string_view json) {
  const Json parsed = Json::parse(json, nullptr, false);
  const Json* list = &parsed;
  if (parsed.is_object()) {
    const auto data = parsed.find("data");
    if (data == parsed.end()) return {};
    list = &*data;
  }
  std::vector<std::string> names;
  if (!list->is_array()) return names;
  for (const Json& item : *list)
    for (const char* key : {"id", "name"})
      if (item.is_object() && item.contains(key) && item[key].is_string()) names.push_back(item[key]);
  return names;
}

}  // namespace bolide::load
