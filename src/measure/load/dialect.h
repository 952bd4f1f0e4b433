// What the servers' languages have in common for a load: a request that asks for a stream of tokens, and what an event
// of that stream says.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace bolide::load {

enum class Dialect : uint8_t {
  kOpenaiChat,  // POST /v1/chat/completions
  kOpenai,      // POST /v1/completions
  kKserve,      // POST /v2/models/MODEL/generate_stream, Triton's
};
std::string_view to_string(Dialect dialect);  // "openai-chat", "openai", "kserve"
Result<Dialect> parse_dialect(std::string_view text);

std::string route(Dialect dialect, std::string_view model);

struct RequestFields {
  std::string model;
  std::string prompt;
  std::string messages_json;  // kOpenaiChat: in place of the prompt, if it is not empty
  int32_t output_tokens = 128;
  bool ignore_eos = true;
  bool ask_usage = true;  // OpenAI's stream_options
  // One JSON object or nothing: its fields replace those above. Checked by check_extra.
  std::string extra_json;
};
std::string request_body(Dialect dialect, const RequestFields& fields);

// kInvalid: not one JSON object.
Result<> check_extra(std::string_view json);

struct StreamEvent {
  bool valid = false;                              // it is JSON
  bool end = false;                                // [DONE]
  bool finished = false;                           // it names a reason why the answer ends
  size_t text_bytes = 0;                           // of the answer, reasoning included
  int64_t prompt_tokens = -1, output_tokens = -1;  // usage; -1: not said
  bool failed = false;                             // it says that something went wrong,
  std::string error_text;                          // and what, 200 bytes at most
};
// Any text whatever, any dialect's.
StreamEvent read_event(std::string_view data);

// The models that an answer to GET /v1/models or POST /v2/repository/index names.
std::vector<std::string> model_names(std::string_view json);

}  // namespace bolide::load
