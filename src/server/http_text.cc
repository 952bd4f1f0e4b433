#include "server/http_text.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/utf8.h"

namespace bolide::server {
namespace {

void add_headers(std::string& out, const Headers& headers, bool keep_alive) {
  for (const auto& [name, value] : headers) fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  if (!keep_alive) out += "Connection: close\r\n";
}

}  // namespace

std::string_view status_text(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Payload Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return status < 400 ? "OK" : status < 500 ? "Bad Request" : "Internal Server Error";
  }
}

std::string response_text(const HttpResponse& response, bool head_only, bool keep_alive) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nContent-Length: {}\r\n", response.status,
                                status_text(response.status), response.body.size());
  add_headers(out, response.headers, keep_alive);
  out += "\r\n";
  if (!head_only) out += response.body;
  return out;
}

std::string stream_head(int status, const Headers& headers, bool keep_alive, bool chunked) {
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\n{}", status, status_text(status), chunked ? "Transfer-Encoding: chunked\r\n" : "");
  add_headers(out, headers, keep_alive);
  return out + "\r\n";
}

std::string chunk_text(std::string_view bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }

std::optional<Target> split_target(std::string_view target) {
  if (target.empty() || target[0] != '/') return std::nullopt;
  Target out;
  const size_t mark = target.find('?');
  if (mark != std::string_view::npos) out.query = target.substr(mark + 1);
  const std::string_view path = target.substr(0, mark);
  for (size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      unsigned char byte = 0;
      if (i + 2 >= path.size()) return std::nullopt;
      const auto [end, fault] = std::from_chars(path.data() + i + 1, path.data() + i + 3, byte, 16);
      if (fault != std::errc() || end != path.data() + i + 3) return std::nullopt;
      c = static_cast<char>(byte);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return std::nullopt;
    out.path += c;
  }
  if (utf8_invalid_at(out.path) != kUtf8Valid) return std::nullopt;
  for (size_t at = 0; (at = out.path.find("/..", at)) != std::string::npos; at += 3)
    if (at + 3 == out.path.size() || out.path[at + 3] == '/') return std::nullopt;
  return out;
}

bool is_loopback_host(std::string_view host) {
  if (host.starts_with('[')) return host == "[::1]" || host.starts_with("[::1]:");
  const std::string name = lower_case(host.substr(0, host.find(':')));
  // Not by its beginning: anybody can have the name 127.0.0.1.example.com.
  in_addr address{};
  if (::inet_pton(AF_INET, name.c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  return name == "localhost";
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

}  // namespace bolide::server
