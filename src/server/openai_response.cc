#include "server/openai_response.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/json_string.h"

namespace bolide::server {
namespace {

// JSON has no infinities: a token that cannot be drawn has this, as OpenAI's API has it.
float finite(float logprob) { return logprob > -9999.f ? logprob : -9999.f; }

// {token, logprob, bytes}, without the closing brace.
void add_token(std::string& out, std::string_view bytes, float logprob) {
  fmt::format_to(std::back_inserter(out), R"({{"token":{},"logprob":{:.6g},"bytes":[)", json_string(bytes),
                 finite(logprob));
  for (size_t i = 0; i < bytes.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", static_cast<unsigned char>(bytes[i]));
  out += ']';
}

// The first token of a prompt has none.
void add_logprob(std::string& out, float logprob) {
  if (std::isnan(logprob))
    out += "null";
  else
    fmt::format_to(std::back_inserter(out), "{:.6g}", finite(logprob));
}

// One token of a chat's logprobs: {token, logprob, bytes, top_logprobs}.
void add_chat_token(std::string& out, const TextPart::Token& token) {
  add_token(out, token.bytes, token.logprob);
  out += R"(,"top_logprobs":[)";
  for (size_t i = 0; i < token.top.size(); ++i) {
    if (i > 0) out += ',';
    add_token(out, token.top[i].bytes, token.top[i].logprob);
    out += '}';
  }
  out += "]}";
}

std::string chat_logprobs(std::span<const TextPart::Token> tokens) {
  std::string out = R"({"content":[)";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    add_chat_token(out, tokens[i]);
  }
  return out + "]}";
}

// A completion's logprobs: parallel lists.
std::string completion_logprobs(std::span<const TextPart::Token> tokens) {
  std::string names, values, tops, offsets;
  bool any = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TextPart::Token& token = tokens[i];
    const char* comma = i == 0 ? "" : ",";
    names += comma + json_string(token.bytes);
    values += comma;
    add_logprob(values, token.logprob);
    fmt::format_to(std::back_inserter(offsets), "{}{}", comma, token.offset);
    tops += comma;
    if (std::isnan(token.logprob)) {
      tops += "null";
      continue;
    }
    tops += '{';
    for (size_t t = 0; t < token.top.size(); ++t)
      fmt::format_to(std::back_inserter(tops), "{}{}:{:.6g}", t == 0 ? "" : ",", json_string(token.top[t].bytes),
                     finite(token.top[t].logprob));
    tops += '}';
    any = any || !token.top.empty();
  }
  return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":{},"text_offset":[{}]}})", names, values,
                     any ? "[" + tops + "]" : "null", offsets);
}

std::string usage_json(const Usage& usage) {
  return fmt::format(
      R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}})",
      usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens);
}

std::string tool_calls_json(std::span<const ToolCall> calls) {
  std::string out = "[";
  for (size_t i = 0; i < calls.size(); ++i)
    fmt::format_to(std::back_inserter(out),
                   R"({}{{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})", i == 0 ? "" : ",",
                   json_string(calls[i].id), json_string(calls[i].name), json_string(calls[i].arguments));
  return out + "]";
}

std::string front_of(const ResponseHead& head, std::string_view object) {
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)", json_string(head.id), object,
                     head.created, json_string(head.model));
}

struct Kind {
  int status;
  std::string_view type, code;
};

// What a client can do about it decides: 4xx for what it asked, 429 and 503 for what may be answered later.
Kind kind_of(Code code) {
  switch (code) {
    case Code::kInvalid: return {400, "invalid_request_error", "invalid_value"};
    case Code::kUnsupported: return {400, "invalid_request_error", "unsupported_parameter"};
    case Code::kNotFound: return {404, "invalid_request_error", "model_not_found"};
    case Code::kOverloaded: return {429, "rate_limit_error", "queue_full"};
    case Code::kUnavailable: return {503, "service_unavailable", "unavailable"};
    case Code::kDeadline: return {504, "timeout", "deadline"};
    case Code::kCancelled: return {499, "cancelled", "cancelled"};
    case Code::kOutOfMemory:
    case Code::kInternal: return {500, "server_error", "internal"};
  }
  return {500, "server_error", "internal"};
}

std::string error_json(std::string_view message, std::string_view type, std::string_view param, std::string_view code) {
  return fmt::format(R"({{"error":{{"message":{},"type":"{}","param":{},"code":"{}"}}}})", json_string(message), type,
                     param.empty() ? "null" : json_string(param), code);
}

std::string whole_response(const ResponseHead& head, std::span<const AnswerContent> answers, const Usage& usage) {
  std::string out = front_of(head, head.chat ? "chat.completion" : "text_completion");
  for (size_t i = 0; i < answers.size(); ++i) {
    const AnswerContent& a = answers[i];
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), R"({{"index":{},)", a.index);
    if (head.chat) {
      const bool text_only = a.tool_calls.empty();
      out += R"("message":{"role":"assistant","content":)";
      out += a.text.empty() && !text_only ? "null" : json_string(a.text);
      if (!text_only) out += R"(,"tool_calls":)" + tool_calls_json(a.tool_calls);
      out += R"(,"refusal":null},"logprobs":)" + (a.logprobs ? chat_logprobs(a.tokens) : "null");
    } else {
      out += R"("text":)" + json_string(a.text) + R"(,"logprobs":)" +
             (a.logprobs ? completion_logprobs(a.tokens) : "null");
    }
    fmt::format_to(std::back_inserter(out), R"(,"finish_reason":"{}"}})", a.finish_reason);
  }
  return out + R"(],"usage":)" + usage_json(usage) + "}";
}

class OpenAiFormat final : public AnswerFormat {
 public:
  OpenAiFormat(const ResponseHead& head, bool include_usage);

  std::string begin(int32_t index) const override;  // of a chat: the role
  std::string text(int32_t index, const TextPart& part, bool logprobs) const override;
  std::string tool_begin(int32_t index, size_t call, const ToolCall& of) const override;
  std::string tool_more(int32_t index, size_t call, std::string_view arguments) const override;
  std::string finish(int32_t index, std::string_view reason) const override;
  std::string end(const Usage& usage) const override;
  std::string error_event(const Error& failure) const override;
  HttpResponse whole(std::span<const AnswerContent> answers, const Usage& usage) const override {
    return {200, {{"Content-Type", "application/json"}}, whole_response(head_, answers, usage)};
  }
  HttpResponse refusal(const Error& failure) const override { return error_response(failure); }

 private:
  // `delta`: the JSON text of the choice's part that differs.
  std::string chunk(int32_t index, std::string_view delta, std::string_view logprobs, std::string_view reason) const;

  const ResponseHead head_;
  const bool include_usage_;
  const std::string front_;  // of a chunk, up to the choices
  const std::string back_;   // behind them
  const bool chat_;
};

OpenAiFormat::OpenAiFormat(const ResponseHead& head, bool include_usage)
    : head_(head),
      include_usage_(include_usage),
      front_("data: " + front_of(head, head.chat ? "chat.completion.chunk" : "text_completion")),
      back_(include_usage ? "],\"usage\":null}\n\n" : "]}\n\n"),
      chat_(head.chat) {}

std::string OpenAiFormat::chunk(int32_t index, std::string_view delta, std::string_view logprobs,
                                std::string_view reason) const {
  return fmt::format(R"({}{{"index":{},{},"logprobs":{},"finish_reason":{}}}{})", front_, index, delta, logprobs,
                     reason, back_);
}

std::string OpenAiFormat::begin(int32_t index) const {
  return chat_ ? chunk(index, R"("delta":{"role":"assistant","content":""})", "null", "null") : std::string();
}

std::string OpenAiFormat::text(int32_t index, const TextPart& part, bool logprobs) const {
  const std::string text = json_string(part.text);
  if (chat_)
    return chunk(index, fmt::format(R"("delta":{{"content":{}}})", text),
                 logprobs ? chat_logprobs(part.tokens) : "null", "null");
  return chunk(index, fmt::format(R"("text":{})", text), logprobs ? completion_logprobs(part.tokens) : "null", "null");
}

std::string OpenAiFormat::tool_begin(int32_t index, size_t call, const ToolCall& of) const {
  return chunk(
      index,
      fmt::format(
          R"("delta":{{"tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}]}})",
          call, json_string(of.id), json_string(of.name)),
      "null", "null");
}

std::string OpenAiFormat::tool_more(int32_t index, size_t call, std::string_view arguments) const {
  return chunk(index,
               fmt::format(R"("delta":{{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})", call,
                           json_string(arguments)),
               "null", "null");
}

std::string OpenAiFormat::finish(int32_t index, std::string_view reason) const {
  return chunk(index, chat_ ? R"("delta":{})" : R"("text":"")", "null", fmt::format("\"{}\"", reason));
}

std::string OpenAiFormat::end(const Usage& usage) const {
  std::string out;
  if (include_usage_) out = front_ + R"(],"usage":)" + usage_json(usage) + "}\n\n";
  return out + "data: [DONE]\n\n";
}

std::string OpenAiFormat::error_event(const Error& failure) const {
  const Kind kind = kind_of(failure.code);
  return "data: " + error_json(failure.text, kind.type, {}, kind.code) + "\n\n";
}

}  // namespace

HttpResponse error_response(const Error& failure, std::string_view param, std::string_view code) {
  Kind kind = kind_of(failure.code);
  if (!code.empty()) kind.code = code;
  HttpResponse response{
      kind.status, {{"Content-Type", "application/json"}}, error_json(failure.text, kind.type, param, kind.code)};
  // Clients repeat requests that were answered with 5xx, unless they are told that it is of no use.
  if (kind.status == 429 || kind.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (kind.status == 500 || kind.status == 504) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

HttpResponse status_response(int status, std::string_view message, std::string_view code) {
  return {status,
          {{"Content-Type", "application/json"}},
          error_json(message, status < 500 ? "invalid_request_error" : "server_error", {}, code)};
}

std::unique_ptr<AnswerFormat> openai_format(const ResponseHead& head, bool include_usage) {
  return std::make_unique<OpenAiFormat>(head, include_usage);
}

}  // namespace bolide::server
