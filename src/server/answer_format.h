// AnswerFormat: how a dialect writes what a language model answers: as a whole, or in the parts of a stream.
//
// Thread rules: immutable; any thread.
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

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Parts of a stream are server-sent events with their blank lines; an empty text is none.
  // The first part of an answer.
  virtual std::string begin(int32_t index) const = 0;
  // A piece of text with its tokens, if they are wanted.
  virtual std::string text(int32_t index, const TextPart& part, bool logprobs) const = 0;
  // The beginning of a tool call (with id and name), or more of its arguments.
  virtual std::string tool_begin(int32_t index, size_t call, const ToolCall& of) const = 0;
  virtual std::string tool_more(int32_t index, size_t call, std::string_view arguments) const = 0;
  // The last part of an answer, and of the stream.
  virtual std::string finish(int32_t index, std::string_view reason) const = 0;
  virtual std::string end(const Usage& usage) const = 0;
  virtual std::string error_event(const Error& failure) const = 0;

  virtual HttpResponse whole(std::span<const AnswerContent> answers, const Usage& usage) const = 0;
  virtual HttpResponse refusal(const Error& failure) const = 0;
};

// Of answers that are never streams, whose parts nobody asks for.
class WholeAnswerFormat : public AnswerFormat {
 public:
  std::string begin(int32_t) const final { return {}; }
  std::string text(int32_t, const TextPart&, bool) const final { return {}; }
  std::string tool_begin(int32_t, size_t, const ToolCall&) const final { return {}; }
  std::string tool_more(int32_t, size_t, std::string_view) const final { return {}; }
  std::string finish(int32_t, std::string_view) const final { return {}; }
  std::string end(const Usage&) const final { return {}; }
  std::string error_event(const Error&) const final { return {}; }
};

}  // namespace bolide::server
