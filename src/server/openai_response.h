// What OpenAI's routes answer, as text: whole responses, chunks of streams, errors.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/answer_text.h"
#include "server/http.h"

namespace bolide::server {

// What all parts of one response say of themselves.
struct ResponseHead {
  std::string id;  // "chatcmpl-..."
  std::string model;
  int64_t created = 0;  // seconds since 1970
  bool chat = true;     // a chat's, or a completion's
};

struct Usage {
  int32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

struct ToolCall {
  std::string id, name, arguments;
};

// One finished answer.
struct AnswerContent {
  int32_t index = 0;
  std::string text;
  std::vector<ToolCall> tool_calls;
  std::string_view finish_reason = "stop";
  bool logprobs = false;
  std::vector<TextPart::Token> tokens;  // with logprobs
};

std::string whole_response(const ResponseHead& head, std::span<const AnswerContent> answers, const Usage& usage);

// Chunks of a stream, as the `data:` lines of server-sent events with their blank line.
class ChunkWriter {
 public:
  // `include_usage`: each chunk says that usage comes at the end.
  ChunkWriter(ResponseHead head, bool include_usage);

  // The first chunk of a chat's answer: the role.
  std::string role(int32_t index) const;
  // A piece of text with its tokens, if they are wanted.
  std::string text(int32_t index, const TextPart& part, bool logprobs) const;
  // The beginning of a tool call (with id and name), or more of its arguments.
  std::string tool_begin(int32_t index, size_t call, const ToolCall& of) const;
  std::string tool_more(int32_t index, size_t call, std::string_view arguments) const;
  std::string finish(int32_t index, std::string_view reason) const;
  std::string usage(const Usage& usage) const;
  static std::string done() { return "data: [DONE]\n\n"; }

 private:
  // `delta`: the JSON text of the choice's part that differs.
  std::string chunk(int32_t index, std::string_view delta, std::string_view logprobs, std::string_view reason) const;

  std::string front_;  // up to the choices
  std::string back_;   // behind them
  bool chat_;
};

// {"error": {message, type, param, code}} and its status, by the failure's code; `code` in place of the usual one.
HttpResponse error_response(const Error& failure, std::string_view param = {}, std::string_view code = {});
// The same as an event of a stream that has begun.
std::string error_event(const Error& failure);
// Statuses that have no Error: 404, 405, 401, 413, ...
HttpResponse status_response(int status, std::string_view message, std::string_view code);

}  // namespace bolide::server
