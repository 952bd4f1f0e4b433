// The lines of a batch, in OpenAI's format: requests as they come in, answers as they go out.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace bolide::server {

struct BatchLine {
  std::string custom_id;
  std::string url;    // one of OpenAI's routes that generate
  std::string body;   // JSON text of an object; what is in it is the route's business
  std::string model;  // that the body names; empty: none
};

// Errors, kInvalid and kUnsupported: no JSON, a field that is missing, of another type, unknown or there twice, another
// method or url, a body that asks for a stream. The text names the field.
Result<BatchLine> parse_batch_line(std::string_view line);

struct BatchAnswer {
  std::string custom_id;
  bool answered = false;  // with 200
};

// All lines that write_answer_line writes begin so.
inline constexpr std::string_view kAnswerLineBegin = R"({"id":"batch_req_)";

// With the newline at its end.
std::string write_answer_line(const std::string& custom_id, const HttpResponse& response);
// Errors, kInvalid: it is no answer of a batch.
Result<BatchAnswer> parse_answer_line(std::string_view line);

}  // namespace bolide::server
