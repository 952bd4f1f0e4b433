// What is checked of a request's head beyond what Beast's parser does, and what handlers get of it.
#pragma once

#include <fmt/format.h>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/http.h"
#include "server/http_text.h"

namespace bolide::server::beast {

namespace http = boost::beast::http;

// Of what ends where a body ends there must be one reading: proxies and servers that differ in it can be played off
// against each other (RFC 9112, 6.1 to 6.3 and 11.2). 0 and nothing, or a status and what is wrong.
template <class Head>
std::pair<int, std::string> check_framing(const Head& head) {
  size_t lengths = 0, encodings = 0;
  for (const auto& field : head) {
    const bool length = field.name() == http::field::content_length;
    const bool encoding = field.name() == http::field::transfer_encoding;
    lengths += length ? 1 : 0;
    encodings += encoding ? 1 : 0;
    if (length && field.value().find_first_not_of("0123456789") != boost::beast::string_view::npos)
      return {400, "Content-Length must be a number"};
    if (encoding && !boost::beast::iequals(field.value(), "chunked"))
      return {501, "of Transfer-Encoding this server has chunked alone"};
  }
  if (lengths + encodings > 1) return {400, "more than one Content-Length or Transfer-Encoding"};
  if (encodings > 0 && head.version() < 11) return {400, "HTTP/1.0 has no Transfer-Encoding"};
  return {0, {}};
}

template <class Head>
std::pair<int, std::string> check_head(const Head& head, const HttpLimits& limits) {
  if (head.version() != 11 && head.version() != 10) return {505, "only HTTP/1.1 is spoken here"};
  if (head.target().size() > limits.target_bytes) return {414, "the address is too long"};
  size_t count = 0, hosts = 0;
  for (const auto& field : head) {
    ++count;
    hosts += field.name() == http::field::host ? 1 : 0;
  }
  if (count > limits.headers) return {431, fmt::format("more than {} headers", limits.headers)};
  if (hosts > 1) return {400, "more than one Host"};
  if (hosts == 0 && head.version() == 11) return {400, "HTTP/1.1 needs a Host header"};
  return check_framing(head);
}

// Without its body. Nothing: its address is not well-formed.
template <class Head>
std::optional<HttpRequest> request_of(const Head& head, const std::string& client) {
  auto target = split_target(std::string_view(head.target().data(), head.target().size()));
  if (!target) return std::nullopt;
  HttpRequest request;
  request.method = std::string(head.method_string());
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  request.client = client;
  for (const auto& field : head)
    request.headers.emplace_back(lower_case({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  return request;
}

// What a head asks for that may be broken, or not be there in full. `target`: what the parser has of it; `bytes`: those
// that it has not taken.
inline std::string_view path_of(std::string_view target, std::string_view bytes) {
  if (target.empty()) {
    const std::string_view line = bytes.substr(0, bytes.find('\r'));
    const size_t space = line.find(' ');
    if (space != std::string_view::npos) target = line.substr(space + 1, line.find(' ', space + 1) - space - 1);
  }
  return target.substr(0, target.find('?'));
}

// 0: nobody is there to be told.
inline int status_of(boost::system::error_code failed) {
  using http::error;
  if (failed == error::body_limit) return 413;
  if (failed == error::header_limit || failed == error::buffer_overflow) return 431;
  if (failed == error::end_of_stream || failed == error::partial_message) return 0;
  return failed.category() == make_error_code(error::bad_method).category() ? 400 : 0;
}

}  // namespace bolide::server::beast
