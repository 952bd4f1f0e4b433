// The bytes of HTTP/1.1 that a server writes, and what it reads of an address.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace bolide::server {

// "Not Found"; for statuses without a name of their own that of their class.
std::string_view status_text(int status);

// A whole response. `head_only`: without its body, of which the length is told.
std::string response_text(const HttpResponse& response, bool head_only, bool keep_alive);
// The head of a response in chunks, or of one that the connection's end ends.
std::string stream_head(int status, const Headers& headers, bool keep_alive, bool chunked);
std::string chunk_text(std::string_view bytes);

struct Target {
  std::string path, query;
};
// "/v1/models?x=1", percent-decoded up to the question mark. Nothing: it is not well-formed, or has bytes that no path
// should have (NUL, line ends, those that are not UTF-8), or steps out of its root ("..").
std::optional<Target> split_target(std::string_view target);

// Whether a Host header ("localhost:8000", "127.0.0.1", "[::1]:80") names this machine to itself.
bool is_loopback_host(std::string_view host);

std::string lower_case(std::string_view text);

}  // namespace bolide::server
