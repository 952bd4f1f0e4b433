// What OpenAI's routes answer, as text: whole responses, chunks of streams, errors.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/answer_format.h"
#include "server/http.h"

namespace bolide::server {

// What all parts of one response say of themselves.
struct ResponseHead {
  std::string id;  // "chatcmpl-..."
  std::string model;
  int64_t created = 0;  // seconds since 1970
  bool chat = true;     // a chat's, or a completion's
};

// Chunks of a stream are `data:` lines. `include_usage`: each chunk says that usage comes at the end.
std::unique_ptr<AnswerFormat> openai_format(const ResponseHead& head, bool include_usage);

// {"error": {message, type, param, code}} and its status, by the failure's code; `code` in place of the usual one.
HttpResponse error_response(const Error& failure, std::string_view param = {}, std::string_view code = {});
// Statuses that have no Error: 404, 405, 401, 413, ...
HttpResponse status_response(int status, std::string_view message, std::string_view code);

}  // namespace bolide::server
