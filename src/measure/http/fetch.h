// One request and its whole answer, waiting: for what is asked before and after a measurement.
//
// Thread rules: any thread; waits at most `timeout_s`.
#pragma once

#include <string>

#include "measure/http/url.h"

namespace bolide::http {

struct Answer {
  int status = 0;
  std::string content_type;
  std::string body;
};

// `request` is the head and the body as they are sent. kUnavailable: no connection, no answer in time; kInvalid: what
// came is not HTTP, or longer than `body_max`.
Result<Answer> fetch(const Address& address, std::string_view request, double timeout_s, size_t body_max = 1 << 20);

// "POST /base/route HTTP/1.1", the headers that every request needs, `headers` (whole lines, may be empty), the body.
std::string request_text(const Url& url, std::string_view method, std::string_view route, std::string_view headers,
                         std::string_view body);

}  // namespace bolide::http
